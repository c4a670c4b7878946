"""KD3A: votes, focus and moments by hand."""

from math import exp

import numpy as np
import pytest
import torch

from fedrf.methods import Inbox
from fedrf.methods.kd3a import HARDLY, consensus_focus, knowledge_vote, moment_distance, target_loss
from tests.methods.toys import CLASSES, constant, seen, target_of

SURE = torch.tensor([0.9, 0.06, 0.04])
SURER = torch.tensor([0.96, 0.02, 0.02])
OTHER = torch.tensor([0.03, 0.92, 0.05])
UNSURE = torch.tensor([0.2, 0.2, 0.6])


@pytest.mark.parametrize(
    ("opinions", "expected", "support"),
    [
        ([SURE, SURER, SURER], (SURE + 2 * SURER) / 3, 3),
        ([SURE, OTHER, SURER], (SURE + SURER) / 2, 2),
        ([OTHER, UNSURE, UNSURE], OTHER, 1),
        ([UNSURE, UNSURE, torch.tensor([0.8, 0.1, 0.1])], torch.tensor([0.4, 1 / 6, 1.3 / 3]), HARDLY),
        ([SURER, OTHER], SURER, 1),  # a tie: the surer one
        ([SURE, OTHER], OTHER, 1),
        ([UNSURE], UNSURE, HARDLY),
        ([SURER], SURER, 1),
    ],
    ids=["agreed", "two to one", "one is sure", "nobody is sure", "tie", "tie again", "alone, unsure", "alone"],
)
def test_knowledge_vote_by_hand(opinions, expected, support):
    consensus = knowledge_vote(torch.stack(opinions)[:, None])
    torch.testing.assert_close(consensus.prediction[0], expected)
    assert float(consensus.support[0]) == pytest.approx(support)
    assert consensus.quality == pytest.approx(support * float(expected.max()), rel=1e-5)


def test_a_source_that_always_disagrees_gets_less():
    random = np.random.RandomState(0)
    named = random.randint(0, 3, size=30)
    agreeing = 0.02 + 0.94 * torch.eye(3)[named]
    disagreeing = 0.02 + 0.94 * torch.eye(3)[(named + 1) % 3]
    shares = consensus_focus(torch.stack([agreeing, agreeing, agreeing, disagreeing]))
    assert float(shares.sum()) == pytest.approx(1)
    torch.testing.assert_close(shares, torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0]))


def test_one_that_is_sure_where_nobody_else_is_gets_more():
    opinions = torch.stack([torch.stack([SURE, UNSURE]), torch.stack([SURE, UNSURE]), torch.stack([SURE, SURE])])
    # Without the first or second, quality is 0.9 less; without the third, 1.8, apart from what nobody is sure of.
    torch.testing.assert_close(consensus_focus(opinions), torch.tensor([0.25, 0.25, 0.5]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("row", [SURE, UNSURE])
def test_a_source_alone_has_all_the_focus(row):
    assert consensus_focus(row[None, None]).tolist() == [1.0]


def test_where_nobody_adds_anything_all_count_alike():
    """Copies that are not sure: without one of them the consensus is the same."""
    opinions = UNSURE[None, None].expand(3, 4, 3)
    torch.testing.assert_close(consensus_focus(opinions), torch.full((3,), 1 / 3))


def test_distance_of_moments_by_hand():
    own = torch.tensor([[1.0, 2.0], [4.0, 9.0]], requires_grad=True)
    peer = torch.tensor([[0.0, 4.0], [1.0, 16.0]])
    size = 0 + 16 + 1 + 16
    distance = moment_distance(own, peer)
    assert float(distance.detach()) == pytest.approx((1 + 4 + (2 - 1) ** 2 + (3 - 4) ** 2) / size)
    distance.backward()
    by_hand = torch.tensor([[2 * 1.0, 2 * (2.0 - 4.0)], [(2 - 1) / 2.0, (3 - 4) / 3.0]]) / size
    torch.testing.assert_close(own.grad, by_hand)
    assert float(moment_distance(peer, peer)) == 0
    assert float(moment_distance(3 * peer.roll(1, 0), 3 * peer)) > 0
    # Columns without any variance have a slope too.
    flat = torch.zeros(2, 2, requires_grad=True)
    moment_distance(flat, peer).backward()
    assert flat.grad.isfinite().all()


def test_the_target_of_kd3a_learns_the_consensus_and_the_moments(tmp_path):
    config, model, batch, features = target_of(tmp_path, "kd3a", align__weight=0.3)
    rows = features @ model.aligner
    own = torch.stack([rows.mean(0), rows.var(0, unbiased=False)])
    peers = (own.detach() + 0.5, own.detach() + 0.1)
    inbox = Inbox(own, peers, (0, 1), {"a": constant(1), "b": constant(1)}, True)
    terms = target_loss(model, batch, features, inbox, config)
    sure = 1 / (1 + 2 * exp(-9))
    chances = (10 * model.align(features) @ model.classifier.weight.T + model.classifier.bias).log_softmax(1)
    wanted = torch.tensor([(1 - sure) / 2, sure, (1 - sure) / 2])
    distilled = -2 * (wanted * chances).sum(1).mean()  # both stand behind it
    apart = sum(moment_distance(own, peer) for peer in peers) / 2
    torch.testing.assert_close(terms["loss"], distilled + 0.3 * apart)
    assert float(terms["support"]) == 2
    for part in (model.classifier.weight, model.aligner, model.adapter.outer.weight):
        expected = torch.autograd.grad(distilled + 0.3 * apart, part, retain_graph=True)[0]
        torch.testing.assert_close(torch.autograd.grad(terms["loss"], part, retain_graph=True)[0], expected)


def test_samples_that_more_sources_stand_behind_count_more(tmp_path):
    config, model, batch, features = target_of(tmp_path, "kd3a", align__weight=0.0)
    inputs = batch.inputs
    networks = {}
    for name, seed in (("a", 0), ("b", 1), ("c", 2)):
        values = 3 * torch.randn(CLASSES * 5, generator=torch.Generator().manual_seed(seed))
        networks[name] = {"classifier": values}
    opinions = torch.stack([seen(model, parts, inputs).softmax(1) for parts in networks.values()])
    consensus = knowledge_vote(opinions)
    assert len(consensus.support.unique()) > 1
    inbox = Inbox(torch.ones(2, 4), (torch.ones(2, 4),), (0,), networks, True)
    got = target_loss(model, batch, features, inbox, config)["loss"]
    chances = model.logits(features).log_softmax(1)
    total = sum(
        float(support) * -sum(float(p) * float(c) for p, c in zip(wanted, row.detach(), strict=True))
        for support, wanted, row in zip(consensus.support, consensus.prediction, chances, strict=True)
    )
    assert float(got.detach()) == pytest.approx(total / len(inputs), rel=1e-4)


def test_until_networks_are_shown_the_target_of_kd3a_learns_nothing(tmp_path):
    config, model, batch, features = target_of(tmp_path, "kd3a")
    inbox = Inbox(torch.ones(2, 4), (torch.ones(2, 4),), (0,), {}, True)
    assert target_loss(model, batch, features, inbox, config) == {}
