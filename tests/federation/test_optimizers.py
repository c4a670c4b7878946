"""Optimisers in the rounds: their kind, and the rate of each part of the network."""

import pytest
import torch

from fedrf.config.loader import load_config
from fedrf.config.registry import METHODS
from tests.federation.recording import new_client
from tests.methods.toys import TARGET, toy

LR = 0.01
ADAM, PLAIN = torch.optim.Adam, torch.optim.SGD
NOT_PLAIN = ("momentum", "weight_decay", "dampening", "nesterov")


def optimisation(folder, client, method, **keys):
    """Return kind and rate of the optimiser of each part, the rate relative to train.lr."""
    config = load_config(None, toy(folder, method, train__lr=LR, **keys))
    module = new_client(config, client, folder).module
    parts = {parameter: name.split(".")[0] for name, parameter in module.named_parameters()}
    groups = [(optimizer, group) for optimizer in module.configure_optimizers() for group in optimizer.param_groups]
    assert not any(group.get(key) for _, group in groups for key in NOT_PLAIN)
    found = {
        (parts[parameter], (type(optimizer), round(group["lr"] / LR, 9)))
        for optimizer, group in groups
        for parameter in group["params"]
    }
    assert len(dict(found)) == len(found), "one rate for each part"
    return dict(found)


def test_a_target_of_fedrf_tca_takes_plain_steps(tmp_path):
    assert optimisation(tmp_path, TARGET, "fedrf-tca") == {"aligner": (PLAIN, 100), "extractor": (PLAIN, 100)}
    expected = {"aligner": (ADAM, 1), "extractor": (ADAM, 1), "classifier": (ADAM, 1)}
    assert optimisation(tmp_path, "ward", "fedrf-tca") == expected


@pytest.mark.parametrize(
    ("client", "method", "keys", "expected"),
    [
        ("ward", "fedrf-tca", {}, {"aligner": (ADAM, 1), "extractor": (ADAM, 0.1), "classifier": (ADAM, 1)}),
        (TARGET, "fedrf-tca", {}, {"aligner": (PLAIN, 100), "extractor": (PLAIN, 10)}),
        (
            "ward",
            "fedrf-tca",
            {"train__optimizer": "sgd"},
            {"aligner": (PLAIN, 100), "extractor": (PLAIN, 10), "classifier": (PLAIN, 100)},
        ),
        (TARGET, "kd3a", {}, {"aligner": (PLAIN, 100), "extractor": (PLAIN, 10), "classifier": (PLAIN, 10)}),
        (
            "ward",
            "f-dann",
            {},
            {"aligner": (ADAM, 1), "extractor": (ADAM, 0.1), "classifier": (ADAM, 1), "auxiliary": (ADAM, 1)},
        ),
        (TARGET, "f-dann", {}, {"aligner": (PLAIN, 100), "extractor": (PLAIN, 10), "auxiliary": (ADAM, 1)}),
        ("ward", "fedrf-tca", {"model__sharing": "frozen"}, {"aligner": (ADAM, 1), "classifier": (ADAM, 1)}),
        (TARGET, "fedrf-tca", {"model__sharing": "frozen"}, {"aligner": (PLAIN, 100)}),
    ],
)
def test_the_factor_of_the_extractor_changes_its_rate_alone(tmp_path, client, method, keys, expected):
    assert optimisation(tmp_path, client, method, train__extractor_lr_factor=0.1, **keys) == expected


@pytest.mark.parametrize("value", [0, -1, "fast"])
def test_a_factor_that_is_not_positive_is_refused(value):
    with pytest.raises(ValueError, match=rf"train\.extractor_lr_factor={value!r}: .*") as caught:
        load_config(None, {"train.extractor_lr_factor": value})
    assert "\n" not in str(caught.value)


def test_the_factor_changes_adaptation_after_the_rounds_in_no_way(tmp_path):
    """The last stage has a rate of its own, adapt.lr."""
    config = load_config(None, toy(tmp_path, "fedrf-plus", train__extractor_lr_factor=0.1, adapt__lr=0.002))
    *_, last = new_client(config, TARGET, tmp_path).module.configure_optimizers()
    assert [group["lr"] for group in last.param_groups] == [0.002]


@pytest.mark.parametrize(
    ("method", "keys", "expected"),
    [
        ("fedrf-plus", {"model__sharing": "local"}, {"aligner": (PLAIN, 100), "extractor": (PLAIN, 100)}),
        ("fedavg", {}, {"aligner": (ADAM, 1), "extractor": (ADAM, 1)}),
    ],
)
def test_joint_adaptation_takes_the_steps_of_its_method(tmp_path, method, keys, expected):
    """Plain steps in a method whose target can train; the sources' optimiser in another."""
    assert optimisation(tmp_path, TARGET, method, adapt__when="joint", **keys) == expected


def test_factors_of_rates_do_not_multiply_over_the_rounds(tmp_path, monkeypatch):
    module = new_client(load_config(None, toy(tmp_path, "fedavg")), "ward", tmp_path).module
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    monkeypatch.setattr(module, "optimizers", lambda: optimizer)
    monkeypatch.setattr(module, "manual_backward", lambda loss: loss.backward())
    for factor, position in ((0.5, -0.25), (0.1, -0.3), (1.0, -0.8)):
        module.step(1.0 * weight, slice(0, 1), factor)
        assert float(weight.detach()) == pytest.approx(position)


def test_the_rates_of_dann_and_cdan_decay_as_in_their_papers():
    for name in ("pooled-dann", "pooled-cdan"):
        factors = [METHODS.find(name).rate_factor(number, 40) for number in (0, 4, 40)]
        assert factors == pytest.approx([1, 2**-0.75, 11**-0.75])
        assert load_config(None, {"method": name}).train.extractor_lr_factor == 0.1
    assert METHODS.find("f-dann").rate_factor(40, 40) == 1
