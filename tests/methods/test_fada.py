"""FADA: clusters and attention, and what disentangling pushes where."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from fedrf.config.loader import load_config
from fedrf.methods import METHODS, Inbox
from fedrf.methods.fada import attention, disentangling_loss, spread
from tests.methods.toys import TARGET, lloyd, new_client, toy


def test_spread_is_that_of_k_means_from_the_same_centres():
    random = np.random.RandomState(0)
    for count, clusters in ((40, 3), (200, 5), (9, 2)):
        rows = random.randn(count, 4) + 3 * random.randint(0, clusters, size=(count, 1))
        begin = rows[np.linspace(0, count - 1, clusters).astype(int)]
        assert spread(torch.from_numpy(rows), clusters) == pytest.approx(lloyd(rows, begin), rel=1e-6)


def test_spread_by_hand_and_at_its_ends():
    rows = torch.tensor([[0.0], [2.0], [10.0], [16.0]])
    assert spread(rows, 2) == pytest.approx((1 + 1 + 9 + 9) / 4)
    assert spread(rows, 9) == 0  # more clusters than samples
    assert spread(torch.ones(5, 2), 3) == 0  # clusters that nobody is in


def test_attention_prefers_the_source_with_tighter_clusters(tmp_path):
    config = load_config(None, toy(tmp_path, "fada"))
    client = new_client(config, TARGET, tmp_path)
    inputs = client.trunk[np.arange(20)]
    projection = torch.zeros(5, 4)
    projection[0, 0], projection[1, 0] = 1.0, 2.0  # to one line: two points, of norm 1
    models = {
        "ward": {"aligner": torch.randn(5, 4, generator=torch.Generator().manual_seed(0))},
        "clinic": {"aligner": projection},
    }
    weights, own = attention(client.model, inputs, models)
    assert own == 1
    assert list(weights) == ["ward", "clinic"]
    assert weights["clinic"] > 1 > weights["ward"] > 0
    assert sum(weights.values()) == pytest.approx(2)
    assert attention(client.model, inputs, {"ward": models["ward"]}) == ({"ward": pytest.approx(1.0)}, 1.0)


def information_by_hand(companion, shared, specific):
    """Donsker and Varadhan's bound, a sample at a time; the product of marginals by shifting one of them."""

    def score(a, b):
        return companion.dependence(torch.cat([a, b]))

    count = len(shared)
    together = sum(score(shared[i], specific[i]) for i in range(count)) / count
    apart = sum(score(shared[i], specific[i - 1]).exp() for i in range(count)) / count
    return (together - apart.log())[0]


@pytest.mark.parametrize("is_labelled", [True, False])
def test_disentangling_by_hand(tmp_path, is_labelled):
    """Each part goes down its own slope, written out without a reversal."""
    client = new_client(load_config(None, toy(tmp_path, "fada")), "ward", tmp_path)
    model, batch = client.model, client.batch(1, 8)
    companion, labels, features = model.companion, batch.labels, model.features(batch.inputs)
    shared, specific = normalize(features @ model.aligner), normalize(features @ companion.specific)
    rebuilt = torch.cat([shared, specific], 1) @ companion.rebuild.weight.T + companion.rebuild.bias
    lost = (rebuilt - features.detach()).square().sum(1).mean()
    information = information_by_hand(companion, shared, specific)
    chances = (specific @ companion.classes_of_specific.weight.T + companion.classes_of_specific.bias).softmax(1)
    wrong = -chances[torch.arange(8), labels].log().mean() if is_labelled else torch.zeros(())
    got = disentangling_loss(model, batch._replace(labels=labels if is_labelled else None), features)
    torch.testing.assert_close(got, lost - information + wrong)
    # What V, W and G go down: rebuilding, + information, − the error of who tells classes from V.
    mapped = [companion.specific, model.aligner, *model.adapter.parameters()]
    expected = torch.autograd.grad(lost + information - wrong, mapped, retain_graph=True)
    for one, two in zip(torch.autograd.grad(got, mapped, retain_graph=True), expected, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-4)
    # What the helpers go down: each its own task.
    for module, task in (
        (companion.dependence, -information),
        (companion.rebuild, lost),
        *([(companion.classes_of_specific, wrong)] if is_labelled else []),
    ):
        parameters = list(module.parameters())
        expected = torch.autograd.grad(task, parameters, retain_graph=True)
        assert expected[0].any()
        for one, two in zip(torch.autograd.grad(got, parameters, retain_graph=True), expected, strict=True):
            torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-4)


def test_fada_is_f_dann_with_a_tenth_of_disentangling(tmp_path):
    config = load_config(None, toy(tmp_path, "fada", align__weight=0.3))
    for name in ("ward", TARGET):
        client = new_client(config, name, tmp_path)
        model, batch = client.model, client.batch(2, 8)
        features = model.features(batch.inputs)
        own, is_target = model.align(features), name == TARGET
        peers = tuple(normalize(torch.randn(8, 4)) for _ in range(2 if is_target else 1))
        inbox = Inbox(own, peers, tuple(range(len(peers))), is_target=is_target)
        loss, simple = (
            (METHODS[one].target_loss if is_target else METHODS[one].source_loss)(model, batch, features, inbox, config)
            for one in ("fada", "f-dann")
        )
        entangled = disentangling_loss(model, batch, features)
        torch.testing.assert_close(loss["loss"], simple["loss"] + 0.1 * entangled)
        torch.testing.assert_close(loss["disentangling"], entangled.detach())
