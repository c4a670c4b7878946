"""KD3A: knowledge vote, consensus focus and distance of moments by hand."""

from math import exp

import numpy as np
import pytest
import torch

from fedrf.config.registry import METHODS
from fedrf.methods.base import Inbox
from fedrf.methods.kd3a import UNSUPPORTED, consensus_focus, knowledge_vote, moment_distance
from tests.methods.toys import CLASSES, constant_prediction, logits_of, outputs_of_copy, target_of

target_loss = METHODS.find("kd3a").target_loss
CONFIDENT = torch.tensor([0.9, 0.06, 0.04])
MORE_CONFIDENT = torch.tensor([0.96, 0.02, 0.02])
OTHER = torch.tensor([0.03, 0.92, 0.05])
UNCERTAIN = torch.tensor([0.2, 0.2, 0.6])


@pytest.mark.parametrize(
    ("predictions", "expected", "support"),
    [
        ([CONFIDENT, MORE_CONFIDENT, MORE_CONFIDENT], (CONFIDENT + 2 * MORE_CONFIDENT) / 3, 3),
        ([CONFIDENT, OTHER, MORE_CONFIDENT], (CONFIDENT + MORE_CONFIDENT) / 2, 2),
        ([OTHER, UNCERTAIN, UNCERTAIN], OTHER, 1),
        ([UNCERTAIN, UNCERTAIN, torch.tensor([0.8, 0.1, 0.1])], torch.tensor([0.4, 1 / 6, 1.3 / 3]), UNSUPPORTED),
        ([MORE_CONFIDENT, OTHER], MORE_CONFIDENT, 1),  # a tie: the more confident one
        ([CONFIDENT, OTHER], OTHER, 1),
        ([UNCERTAIN], UNCERTAIN, UNSUPPORTED),
        ([MORE_CONFIDENT], MORE_CONFIDENT, 1),
    ],
    ids=[
        "all agree",
        "two to one",
        "one is confident",
        "none is confident",
        "tie",
        "another tie",
        "one source, uncertain",
        "one source",
    ],
)
def test_knowledge_vote_by_hand(predictions, expected, support):
    consensus = knowledge_vote(torch.stack(predictions)[:, None])
    torch.testing.assert_close(consensus.prediction[0], expected)
    assert float(consensus.support[0]) == pytest.approx(support)
    assert consensus.quality == pytest.approx(support * float(expected.max()), rel=1e-5)


def test_a_source_that_always_disagrees_has_no_weight():
    random = np.random.RandomState(0)
    predicted = random.randint(0, 3, size=30)
    agreeing = 0.02 + 0.94 * torch.eye(3)[predicted]
    disagreeing = 0.02 + 0.94 * torch.eye(3)[(predicted + 1) % 3]
    shares = consensus_focus(torch.stack([agreeing, agreeing, agreeing, disagreeing]))
    assert float(shares.sum()) == pytest.approx(1)
    torch.testing.assert_close(shares, torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0]))


def test_a_source_that_alone_is_confident_has_more_weight():
    predictions = torch.stack(
        [torch.stack([CONFIDENT, UNCERTAIN]), torch.stack([CONFIDENT, UNCERTAIN]), torch.stack([CONFIDENT, CONFIDENT])]
    )
    # Without the first or second, quality is 0.9 lower; without the third, about 1.8.
    torch.testing.assert_close(consensus_focus(predictions), torch.tensor([0.25, 0.25, 0.5]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("row", [CONFIDENT, UNCERTAIN])
def test_a_single_source_has_all_the_weight(row):
    assert consensus_focus(row[None, None]).tolist() == [1.0]


def test_sources_that_change_nothing_have_equal_weights():
    """Copies that are uncertain: without one of them the consensus is the same."""
    predictions = UNCERTAIN[None, None].expand(3, 4, 3)
    torch.testing.assert_close(consensus_focus(predictions), torch.full((3,), 1 / 3))


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
    # Columns without variance have a finite gradient.
    flat = torch.zeros(2, 2, requires_grad=True)
    moment_distance(flat, peer).backward()
    assert flat.grad.isfinite().all()


def test_the_target_of_kd3a_learns_the_consensus_and_the_moments(tmp_path):
    config, module, batch, features = target_of(tmp_path, "kd3a", align__weight=0.3)
    rows = features @ module.aligner
    own = torch.stack([rows.mean(0), rows.var(0, unbiased=False)])
    peers = (own.detach() + 0.5, own.detach() + 0.1)
    inbox = Inbox(own, peers, (0, 1), {"a": constant_prediction(1), "b": constant_prediction(1)}, True)
    terms = target_loss(module, batch, features, inbox, config)
    confidence = 1 / (1 + 2 * exp(-9))
    log_probabilities = logits_of(module, module.align(features)).log_softmax(1)
    consensus = torch.tensor([(1 - confidence) / 2, confidence, (1 - confidence) / 2])
    distilled = -2 * (consensus * log_probabilities).sum(1).mean()  # both sources support it
    distance = sum(moment_distance(own, peer) for peer in peers) / 2
    torch.testing.assert_close(terms["loss"], distilled + 0.3 * distance)
    assert float(terms["support"]) == 2
    for parameter in (module.classifier.weight, module.aligner, module.extractor.adapter.outer.weight):
        expected = torch.autograd.grad(distilled + 0.3 * distance, parameter, retain_graph=True)[0]
        torch.testing.assert_close(torch.autograd.grad(terms["loss"], parameter, retain_graph=True)[0], expected)


def test_samples_that_more_sources_support_count_more(tmp_path):
    config, module, batch, features = target_of(tmp_path, "kd3a", align__weight=0.0)
    inputs = batch.inputs
    models = {}
    for name, seed in (("a", 0), ("b", 1), ("c", 2)):
        values = 3 * torch.randn(CLASSES * 5, generator=torch.Generator().manual_seed(seed))
        models[name] = {"classifier": values}
    predictions = torch.stack([outputs_of_copy(module, parts, inputs).softmax(1) for parts in models.values()])
    consensus = knowledge_vote(predictions)
    assert len(consensus.support.unique()) > 1
    inbox = Inbox(torch.ones(2, 4), (torch.ones(2, 4),), (0,), models, True)
    loss = target_loss(module, batch, features, inbox, config)["loss"]
    log_probabilities = module.logits(features).log_softmax(1)
    total = sum(
        float(support) * -sum(float(p) * float(log) for p, log in zip(prediction, row.detach(), strict=True))
        for support, prediction, row in zip(consensus.support, consensus.prediction, log_probabilities, strict=True)
    )
    assert float(loss.detach()) == pytest.approx(total / len(inputs), rel=1e-4)


def test_the_target_of_kd3a_learns_nothing_before_it_receives_source_models(tmp_path):
    config, module, batch, features = target_of(tmp_path, "kd3a")
    inbox = Inbox(torch.ones(2, 4), (torch.ones(2, 4),), (0,), {}, True)
    assert target_loss(module, batch, features, inbox, config) == {}
