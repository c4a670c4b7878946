"""FADA: clusters, attention, and the gradients of the disentangling loss."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.nn.functional import normalize

from fedrf.config.loader import load_config
from fedrf.config.registry import METHODS
from fedrf.data.domains import load_samples
from fedrf.methods.base import Inbox
from fedrf.methods.fada import disentangling_loss, spread
from tests.federation.recording import new_client
from tests.methods.toys import TARGET, k_means_spread, toy


def test_spread_is_that_of_k_means_from_the_same_centres():
    random = np.random.RandomState(0)
    for count, clusters in ((40, 3), (200, 5), (9, 2)):
        rows = random.randn(count, 4) + 3 * random.randint(0, clusters, size=(count, 1))
        centres = rows[np.linspace(0, count - 1, clusters).astype(int)]
        assert spread(torch.from_numpy(rows), clusters) == pytest.approx(k_means_spread(rows, centres), rel=1e-6)


def test_spread_by_hand_and_in_limiting_cases():
    rows = torch.tensor([[0.0], [2.0], [10.0], [16.0]])
    assert spread(rows, 2) == pytest.approx((1 + 1 + 9 + 9) / 4)
    assert spread(rows, 9) == 0  # more clusters than samples
    assert spread(torch.ones(5, 2), 3) == 0  # empty clusters


def test_clusters_do_not_depend_on_the_order_of_the_file(tmp_path):
    """Without the shuffle, k-means on a sorted file would begin with one row of each class and find all classes."""
    random, labels, seeds = np.random.RandomState(0), np.repeat(np.arange(6), 20), 50
    rows = 5 * np.eye(6)[labels] + random.randn(120, 6)
    spreads = {}
    for folder, order in (("sorted", np.arange(120)), ("permuted", random.permutation(120))):
        (tmp_path / folder).mkdir()
        for name in ("a", "t"):
            save_file({"features": rows[order], "labels": labels[order]}, tmp_path / folder / f"{name}.safetensors")
        keys = {"data.name": "features", "data.root": str(tmp_path / folder), "data.target": "t"}
        clients = (load_samples(load_config(None, {**keys, "seed": seed}), "t") for seed in range(seeds))
        spreads[folder] = np.array([spread(torch.from_numpy(samples.array()), 6) for samples in clients])
    error = np.hypot(*(values.std(ddof=1) / seeds**0.5 for values in spreads.values()))
    assert abs(spreads["sorted"].mean() - spreads["permuted"].mean()) < 3 * error
    all_found = k_means_spread(rows, 5 * np.eye(6))
    assert min(values.mean() for values in spreads.values()) > 1.3 * all_found


def test_attention_prefers_the_source_with_tighter_clusters(tmp_path):
    config = load_config(None, toy(tmp_path, "fada"))
    module = new_client(config, TARGET, tmp_path).module
    inputs, weigh_sources = module.samples.rows[np.arange(20)], METHODS.find("fada").weigh_sources
    projection = torch.zeros(5, 4)
    projection[0, 0], projection[1, 0] = 1.0, 2.0  # onto a line: two points of norm 1
    models = {
        "ward": {"aligner": torch.randn(5, 4, generator=torch.Generator().manual_seed(0))},
        "clinic": {"aligner": projection},
    }
    weights, own = weigh_sources(module, inputs, models)
    assert own == 1
    assert list(weights) == ["ward", "clinic"]
    assert weights["clinic"] > 1 > weights["ward"] > 0
    assert sum(weights.values()) == pytest.approx(2)
    assert weigh_sources(module, inputs, {"ward": models["ward"]}) == ({"ward": pytest.approx(1.0)}, 1.0)


def information_by_hand(network, shared, specific):
    """Return Donsker and Varadhan's bound, one sample at a time; shifted samples are the product of marginals."""

    def score(a, b):
        return network["dependence"](torch.cat([a, b]))

    count = len(shared)
    joint = sum(score(shared[i], specific[i]) for i in range(count)) / count
    product = sum(score(shared[i], specific[i - 1]).exp() for i in range(count)) / count
    return (joint - product.log())[0]


@pytest.mark.parametrize("is_labelled", [True, False])
def test_disentangling_by_hand(tmp_path, is_labelled):
    """Each part descends its own gradient, written out without reversal layers."""
    module = new_client(load_config(None, toy(tmp_path, "fada")), "ward", tmp_path).module
    batch, network = module.samples.batch(1, 8), module.auxiliary
    labels, features = batch.labels, module.features(batch.inputs)
    shared, specific = normalize(features @ module.aligner), normalize(features @ network.specific)
    rebuild, classes = network["rebuild"], network["classes_of_specific"]
    rebuilt = torch.cat([shared, specific], 1) @ rebuild.weight.T + rebuild.bias
    rebuild_error = (rebuilt - features.detach()).square().sum(1).mean()
    information = information_by_hand(network, shared, specific)
    probabilities = (specific @ classes.weight.T + classes.bias).softmax(1)
    cross_entropy = -probabilities[torch.arange(8), labels].log().mean() if is_labelled else torch.zeros(())
    loss = disentangling_loss(module, batch._replace(labels=labels if is_labelled else None), features)
    torch.testing.assert_close(loss, rebuild_error - information + cross_entropy)
    # V, W and G descend the rebuilding error + information − the error of classifying by V.
    mapped = [network.specific, module.aligner, *module.extractor.adapter.parameters()]
    expected = torch.autograd.grad(rebuild_error + information - cross_entropy, mapped, retain_graph=True)
    for gradient, by_hand in zip(torch.autograd.grad(loss, mapped, retain_graph=True), expected, strict=True):
        torch.testing.assert_close(gradient, by_hand, atol=1e-6, rtol=1e-4)
    # Each of the other networks descends its own term.
    for layers, term in (
        (network["dependence"], -information),
        (rebuild, rebuild_error),
        *([(classes, cross_entropy)] if is_labelled else []),
    ):
        parameters = list(layers.parameters())
        expected = torch.autograd.grad(term, parameters, retain_graph=True)
        assert expected[0].any()
        for gradient, by_hand in zip(torch.autograd.grad(loss, parameters, retain_graph=True), expected, strict=True):
            torch.testing.assert_close(gradient, by_hand, atol=1e-6, rtol=1e-4)


def test_fada_is_f_dann_plus_a_tenth_of_the_disentangling_loss(tmp_path):
    config = load_config(None, toy(tmp_path, "fada", align__weight=0.3))
    for name in ("ward", TARGET):
        module = new_client(config, name, tmp_path).module
        batch = module.samples.batch(2, 8)
        features = module.features(batch.inputs)
        own, is_target = module.align(features), name == TARGET
        peers = tuple(normalize(torch.randn(8, 4)) for _ in range(2 if is_target else 1))
        inbox = Inbox(own, peers, tuple(range(len(peers))), is_target=is_target)
        side = "target_loss" if is_target else "source_loss"
        fada, f_dann = (
            getattr(METHODS.find(method), side)(module, batch, features, inbox, config) for method in ("fada", "f-dann")
        )
        entangled = disentangling_loss(module, batch, features)
        torch.testing.assert_close(fada["loss"], f_dann["loss"] + 0.1 * entangled)
        torch.testing.assert_close(fada["disentangling"], entangled.detach())
