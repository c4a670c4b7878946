"""Losses: which gradient reaches what, on both sides, and that the peer's message stays constant."""

import pytest
import torch

from fedrf import methods
from fedrf.config.loader import load_config
from fedrf.config.presets import PRESETS
from fedrf.methods import METHODS, Inbox
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.mean_embedding import OwnEmbedding
from fedrf.models.network import Batch, DomainModel
from fedrf.tca.random_features import RandomFourierFeatures


@pytest.fixture
def model():
    torch.manual_seed(0)
    extractor = make_extractor("identity", (5,))
    torch.nn.init.normal_(extractor.adapter.outer.weight)  # the identity has no gradient in its first layer
    return DomainModel(extractor.adapter, RandomFourierFeatures(5, 20), dim=4, num_classes=3)


@pytest.fixture
def batch():
    torch.manual_seed(1)
    rows = torch.arange(12)
    return Batch(1, rows, torch.randn(12, 5), rows % 3)


CONFIG = load_config(None, ["method=fedrf-tca"])


def peers(count, size=40):
    torch.manual_seed(2)
    return tuple(torch.nn.functional.normalize(torch.randn(size), dim=0).requires_grad_() for _ in range(count))


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return {
        kind: None if parts[0].grad is None else torch.cat([p.grad.flatten() for p in parts])
        for kind, parts in model.parts().items()
        if parts
    }


def test_registry_and_presets_name_the_same_methods():
    assert set(methods._FOUND) == set(PRESETS)  # `METHODS` has only those with a preset


@pytest.mark.parametrize("message", ["batch", "running", "exact"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_mmd_reaches_extractor_and_aligner_and_leaves_the_peers_alone(model, batch, side, message):
    """The gradient of |Wᵀ(own − peer)|² by hand: 2 v vᵀW for W, and through `own` for G."""
    constant = tuple(peer.detach() for peer in peers(2 if side == "target" else 1))
    features = model.features(batch.inputs)
    own = OwnEmbedding(40, message)(features, [features.detach()])
    inbox = Inbox(own, constant)
    loss = getattr(METHODS["fedrf-tca"], f"{side}_loss")
    terms = loss(model, batch, features, inbox, CONFIG)
    mmd = terms["loss"] - (terms["classification"] if side == "source" else 0)
    expected = sum((own - peer) @ model.aligner @ model.aligner.T @ (own - peer) for peer in constant) / len(constant)
    torch.testing.assert_close(mmd, expected)
    only_mmd = METHODS["fedrf-tca"].target_loss(model, batch, features, inbox, CONFIG)["loss"]
    got = gradient(model, only_mmd)
    by_hand = sum(2 * torch.outer(own - peer, (own - peer) @ model.aligner) for peer in constant) / len(constant)
    torch.testing.assert_close(got["aligner"], by_hand.flatten())
    assert got["extractor"].abs().max() > 0
    assert got["classifier"] is None


def test_no_gradient_flows_into_a_message(model, batch):
    leaf = peers(1)
    features = model.features(batch.inputs)
    terms = METHODS["fedrf-tca"].target_loss(
        model, batch, features, Inbox(features.mean(0), tuple(p.detach() for p in leaf)), CONFIG
    )
    terms["loss"].backward()
    assert leaf[0].grad is None


def test_a_source_outside_the_round_minimises_classification_alone(model, batch):
    features = model.features(batch.inputs)
    inside = METHODS["fedrf-tca"].source_loss(model, batch, features, Inbox(features.mean(0), peers(1)), CONFIG)
    outside = METHODS["fedrf-tca"].source_loss(model, batch, features, Inbox(features.mean(0)), CONFIG)
    torch.testing.assert_close(outside["loss"], inside["classification"])
    assert inside["loss"] > outside["loss"]
    assert "mmd" not in outside


def test_lambda_weighs_the_discrepancy(model, batch):
    features = model.features(batch.inputs)
    inbox = Inbox(features.mean(0), peers(1))
    twice = load_config(None, ["method=fedrf-tca", "align.weight=2"])
    one = METHODS["fedrf-tca"].source_loss(model, batch, features, inbox, CONFIG)
    two = METHODS["fedrf-tca"].source_loss(model, batch, features, inbox, twice)
    torch.testing.assert_close(two["loss"] - two["classification"], 2 * (one["loss"] - one["classification"]))


def test_with_the_proximal_step_the_target_trains_nothing_in_the_rounds(model, batch):
    features = model.features(batch.inputs)
    inbox = Inbox(features.mean(0), peers(2))
    assert "loss" not in METHODS["fedrf-plus"].target_loss(model, batch, features, inbox, load_config())


@pytest.mark.parametrize("kind", ["aligner", "classifier", "extractor"])
@pytest.mark.parametrize("classifier", ["linear", "mlp"])
def test_parts_survive_the_journey(kind, classifier):
    torch.manual_seed(0)
    models = [
        DomainModel(make_extractor("identity", (5,)).adapter, RandomFourierFeatures(5, 20), 4, 3, classifier)
        for _ in range(2)
    ]
    values = models[0].get_part(kind)
    before = values.clone()
    models[1].set_part(kind, values)
    torch.testing.assert_close(models[1].get_part(kind), before, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in models[0].parts()[kind]:
            parameter += 1
    torch.testing.assert_close(values, before, rtol=0, atol=0)  # what was taken is a copy


def test_outputs_have_unit_norm_inside(model, batch):
    aligned = model.align(model.features(batch.inputs))
    torch.testing.assert_close(aligned.norm(dim=1), torch.ones(12))
    torch.testing.assert_close(model.features(batch.inputs).norm(dim=1), torch.ones(12))
    assert model(batch.inputs).shape == (12, 3)
