"""FedRF-TCA: the gradients of both losses, messages of peers as constants, the target's step, and the proximal step."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import normalize

from fedrf.config.loader import load_config
from fedrf.config.registry import METHODS
from fedrf.methods.base import Inbox
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.mean_embedding import OwnEmbedding
from fedrf.models.network import Batch, DomainModel
from fedrf.models.parts import named_parts
from fedrf.tca.random_features import RandomFourierFeatures
from tests.federation.recording import new_client
from tests.federation.reference import batch_rows, shuffled_rows
from tests.methods.toys import SOURCES, TARGET, RecordedRun, toy


@pytest.fixture
def model():
    torch.manual_seed(0)
    extractor = make_extractor("identity", (5,))
    torch.nn.init.normal_(extractor.adapter.outer.weight)  # otherwise its first layer has no gradient
    return DomainModel(extractor, RandomFourierFeatures(5, 20), dim=4, num_classes=3)


@pytest.fixture
def batch():
    torch.manual_seed(1)
    rows = torch.arange(12)
    return Batch(1, rows, torch.randn(12, 5), rows % 3)


FEDRF_TCA, CONFIG = METHODS.find("fedrf-tca"), load_config(None, ["method=fedrf-tca"])


def peers(count, size=40):
    torch.manual_seed(2)
    return tuple(normalize(torch.randn(size), dim=0).requires_grad_() for _ in range(count))


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    parts = {part: list(parameters.values()) for part, parameters in named_parts(model).items() if parameters}
    return {
        part: None if parameters[0].grad is None else torch.cat([value.grad.flatten() for value in parameters])
        for part, parameters in parts.items()
    }


@pytest.mark.parametrize("message", ["batch", "running", "exact"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_the_gradient_of_the_mmd_by_hand(model, batch, side, message):
    """The gradient of |Wᵀ(own − peer)|² is 2 v vᵀW for W, and reaches G through `own`."""
    constant = tuple(peer.detach() for peer in peers(2 if side == "target" else 1))
    features = model.features(batch.inputs)
    own = OwnEmbedding(40, message)(features, [features.detach()])
    inbox = Inbox(own, constant)
    loss = getattr(FEDRF_TCA, f"{side}_loss")
    terms = loss(model, batch, features, inbox, CONFIG)
    mmd = terms["loss"] - (terms["classification"] if side == "source" else 0)
    expected = sum((own - peer) @ model.aligner @ model.aligner.T @ (own - peer) for peer in constant) / len(constant)
    torch.testing.assert_close(mmd, expected)
    only_mmd = FEDRF_TCA.target_loss(model, batch, features, inbox, CONFIG)["loss"]
    gradients = gradient(model, only_mmd)
    by_hand = sum(2 * torch.outer(own - peer, (own - peer) @ model.aligner) for peer in constant) / len(constant)
    torch.testing.assert_close(gradients["aligner"], by_hand.flatten())
    assert gradients["extractor"].abs().max() > 0
    assert gradients["classifier"] is None


def test_no_gradient_flows_into_a_message(model, batch):
    (peer,) = peers(1)
    features = model.features(batch.inputs)
    terms = FEDRF_TCA.target_loss(model, batch, features, Inbox(features.mean(0), (peer.detach(),)), CONFIG)
    terms["loss"].backward()
    assert peer.grad is None


def test_a_source_that_does_not_participate_minimises_cross_entropy_only(model, batch):
    features = model.features(batch.inputs)
    inside = FEDRF_TCA.source_loss(model, batch, features, Inbox(features.mean(0), peers(1)), CONFIG)
    outside = FEDRF_TCA.source_loss(model, batch, features, Inbox(features.mean(0)), CONFIG)
    torch.testing.assert_close(outside["loss"], inside["classification"])
    assert inside["loss"] > outside["loss"]
    assert "mmd" not in outside


def test_lambda_is_the_weight_of_the_discrepancy(model, batch):
    features = model.features(batch.inputs)
    inbox = Inbox(features.mean(0), peers(1))
    twice = load_config(None, ["method=fedrf-tca", "align.weight=2"])
    single = FEDRF_TCA.source_loss(model, batch, features, inbox, CONFIG)
    double = FEDRF_TCA.source_loss(model, batch, features, inbox, twice)
    discrepancies = [terms["loss"] - terms["classification"] for terms in (single, double)]
    torch.testing.assert_close(discrepancies[1], 2 * discrepancies[0])


def test_with_the_proximal_step_the_target_trains_nothing_in_the_rounds(model, batch):
    features = model.features(batch.inputs)
    inbox = Inbox(features.mean(0), peers(2))
    assert "loss" not in METHODS.find("fedrf-plus").target_loss(model, batch, features, inbox, load_config())


def mean_embedding_by_hand(adapter, rows, frequencies):
    """Return Σℓ of some rows, with the network written out."""
    hidden = (rows @ adapter["inner.weight"].T + adapter["inner.bias"]).relu()
    extracted = normalize(rows + hidden @ adapter["outer.weight"].T + adapter["outer.bias"])
    angles = extracted @ frequencies.T
    return torch.cat([angles.cos(), angles.sin()], dim=1).mean(0) / len(frequencies) ** 0.5


@pytest.mark.parametrize("factor", [1.0, 0.1])
def test_one_step_of_a_target_by_hand(tmp_path, factor):
    """W ← W − 100 · lr · ∇L_MMD with ∇L_MMD = 2/K Σₖ vₖvₖᵀW, and the same step for G with its factor of the rate."""
    more = {
        "model__sharing": "local",
        "train__rounds": 1,
        "federation__classifier_interval": 1,
        "model__num_features": 15,
        "model__sigma": 1.0,
    }
    overrides = toy(tmp_path, "fedrf-tca", train__lr=0.01, train__extractor_lr_factor=factor, **more)
    config = load_config(None, overrides)
    module, run = new_client(config, TARGET, tmp_path).module, RecordedRun(overrides, tmp_path)
    embeddings, after = run.sent("mean_embedding"), run.weights(TARGET)
    aligner, adapter = module.aligner.detach(), dict(module.extractor.adapter.named_parameters())

    differences = [embeddings[1, TARGET] - embeddings[1, source] for source in SOURCES]
    gradient_by_hand = 2 / 2 * sum(torch.outer(v, v @ aligner) for v in differences)
    torch.testing.assert_close(run.sent("aligner")[2, TARGET].reshape(30, 4), aligner - 100 * 0.01 * gradient_by_hand)

    rows = load_file(tmp_path / "data" / f"{TARGET}.safetensors")["features"].float()
    batch = rows[shuffled_rows(config, TARGET, len(rows))[batch_rows(config, 2, len(rows), 1)]]
    own = mean_embedding_by_hand(adapter, batch, after["random_features.frequencies"])
    torch.testing.assert_close(own.detach(), embeddings[1, TARGET])
    loss = sum(((own - embeddings[1, source]) @ aligner).square().sum() for source in SOURCES) / 2
    gradients = dict(zip(adapter, torch.autograd.grad(loss, list(adapter.values())), strict=True))
    assert gradients["outer.weight"].abs().max() > 1e-3
    for name, value in adapter.items():
        torch.testing.assert_close(after[f"adapter.{name}"], value.detach() - factor * 100 * 0.01 * gradients[name])


def test_the_proximal_step_solves_its_problem():
    """W moves to the minimum of |W' − W|² + Σₖ |vₖᵀW'|² / γ, here by least squares, with one vₖ for each source."""
    random, config = np.random.RandomState(0), load_config(None, ["align.gamma=0.3"])
    average, target = random.randn(6, 2), random.randn(6)
    sources = [random.randn(6) for _ in range(3)]
    moved = METHODS.find("fedrf-plus").after_average("aligner", average, sources, target, config)
    rows = np.concatenate([np.eye(6), (np.stack(sources) - target) / np.sqrt(0.3)])
    expected = np.linalg.lstsq(rows, np.concatenate([average, np.zeros((3, 2))]), rcond=None)[0]
    np.testing.assert_allclose(moved, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("method", "part", "sources", "target"),
    [
        ("fedrf-plus", "classifier", 1, True),
        ("fedrf-plus", "aligner", 0, True),
        ("fedrf-plus", "aligner", 1, False),
        ("fedrf-tca", "aligner", 1, True),
        ("fedavg", "aligner", 1, True),
    ],
    ids=["other part", "no source", "no target", "gradient steps", "another method"],
)
def test_other_averages_stay_as_they_are(method, part, sources, target):
    average, embeddings = np.ones((4, 2)), [np.arange(4.0)] * sources
    config = load_config(None, [f"method={method}"])
    unchanged = METHODS.find(method).after_average(part, average, embeddings, np.ones(4) if target else None, config)
    np.testing.assert_array_equal(unchanged, np.ones((4, 2)))
