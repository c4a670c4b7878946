"""FedAvg, one average, FedSGD and FedProx against reference loops over two sources of unequal size."""

import numpy as np
import pytest
import torch

from fedrf.config.loader import load_config
from fedrf.methods.base import Inbox, Method
from fedrf.models.parts import parameters_of
from fedrf.protocol.envelope import Reply
from tests.methods.toys import (
    COUNTS,
    NETWORK,
    SOURCES,
    TARGET,
    RecordedRun,
    aligned,
    assert_same_networks,
    classification,
    new_client,
    plain_loop,
    toy,
)


def source_loss(name, model, rows, batch, received):
    return None if name == TARGET else classification(model, rows, batch.labels)


def network_parameters(model):
    return [parameter for part in NETWORK for parameter in parameters_of(model, part)]


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("fedavg", {}),
        ("fedavg", {"train__batch_size": 16}),  # more than the smaller source has
        ("fedavg", {"federation__drop": 0.5, "train__rounds": 9}),
        ("source-average", {"federation__classifier_interval": "last"}),
    ],
    ids=["averages", "large batches", "lost messages", "one average"],
)
def test_networks_are_averaged_with_weights_by_sample_counts(tmp_path, method, more):
    overrides = toy(tmp_path, method, **more)
    expected = plain_loop(load_config(None, overrides), tmp_path, source_loss, COUNTS.get)
    run = RecordedRun(overrides, tmp_path)
    assert_same_networks(run, expected)
    # Equal weights would give another network.
    equal = plain_loop(load_config(None, overrides), tmp_path, source_loss)
    assert not torch.allclose(equal[TARGET].aligner, expected[TARGET].aligner, atol=1e-3)


def test_one_average_is_sent_once_after_the_last_round(tmp_path):
    run = RecordedRun(toy(tmp_path, "source-average", federation__classifier_interval="last"), tmp_path)
    for part in NETWORK:
        assert set(run.sent(part)) == {(8, name) for name in SOURCES}


def test_fedsgd_descends_the_average_gradient_of_one_common_model(tmp_path):
    overrides = toy(tmp_path, "fedsgd", federation__classifier_interval=1)
    config = load_config(None, overrides)
    clients = {name: new_client(config, name, tmp_path) for name in SOURCES}
    common = new_client(config, TARGET, tmp_path).module
    common.extractor.adapter.requires_grad_(True)
    parameters = network_parameters(common)
    initial = [parameter.detach().clone() for parameter in parameters]
    for number in range(1, config.train.rounds + 1):
        gradients = [torch.zeros_like(parameter) for parameter in parameters]
        for name, client in clients.items():
            batch = client.module.samples.batch(number, config.train.batch_size)
            loss = classification(common, aligned(common, batch.inputs), batch.labels)
            for total, gradient in zip(gradients, torch.autograd.grad(loss, parameters), strict=True):
                total += COUNTS[name] / sum(COUNTS[source] for source in SOURCES) * gradient
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= 100 * config.train.lr * gradient
    assert all((value - before).abs().max() > 1e-2 for value, before in zip(parameters, initial, strict=True))
    assert_same_networks(RecordedRun(overrides, tmp_path), dict.fromkeys((*SOURCES, TARGET), common), 2e-4)


def proximal_loop(config, folder):
    """FedAvg by Adam, with μ · (w − the latest average) added to the gradients."""
    averages = {}

    def loss(name, model, rows, batch, received):
        if name == TARGET:
            return None
        own = torch.cat([parameter.flatten() for parameter in network_parameters(model)])
        if (batch.round - 1) % 3 == 0:  # in round 1 this is the common initial network
            averages[name] = own.detach().clone()
        penalty = config.train.proximal * (own.detach() - averages[name]) @ own
        return classification(model, rows, batch.labels) + penalty

    return plain_loop(config, folder, loss, COUNTS.get)


def test_fedprox_penalises_the_distance_to_the_latest_average(tmp_path):
    """Averages are three rounds apart: the anchor stays while the clients change."""
    overrides = toy(tmp_path, "fedprox", train__proximal=0.7, train__rounds=9)
    expected = proximal_loop(load_config(None, overrides), tmp_path)
    assert_same_networks(RecordedRun(overrides, tmp_path), expected)


def test_a_larger_penalty_keeps_clients_closer_to_the_average(tmp_path):
    drift = {}
    for proximal in (0.0, 10.0):
        rare_averages = {"train__rounds": 20, "federation__classifier_interval": 10}
        overrides = toy(tmp_path, "fedprox", train__proximal=proximal, **rare_averages)
        run = RecordedRun(overrides, tmp_path / f"{proximal}")
        last = run.replies(TARGET)[11].parts
        moved = [run.sent(part)[21, name] - torch.tensor(last[part]) for part in NETWORK for name in SOURCES]
        drift[proximal] = float(torch.cat([difference.flatten() for difference in moved]).norm())
    assert drift[10.0] < drift[0.0] / 2


class WithoutLoss(Method):
    """A method whose loss is 0, so that only the penalty is left."""

    target_trains = ()

    def source_loss(self, model, batch, features, inbox, config):
        return {"loss": 0 * model.aligner.sum()}


def test_the_penalty_of_fedprox_by_hand(tmp_path):
    config = load_config(None, toy(tmp_path, "fedprox", train__proximal=0.5))
    module = new_client(config, "ward", tmp_path).module
    module.load(Reply(parts={"classifier": np.zeros(15, np.float32)}))
    with torch.no_grad():
        module.classifier.weight.fill_(2.0)  # 3 × 4 of them; biases stay 0
    module.method = WithoutLoss()
    penalty = module.losses(module.samples.batch(1, 8), torch.zeros(8, 5), Inbox(torch.zeros(5)))["loss"]
    assert float(penalty.detach()) == pytest.approx(0.5 / 2 * 12 * 2.0**2)
    penalty.backward()
    torch.testing.assert_close(module.classifier.weight.grad, torch.full((3, 4), 0.5 * 2.0))
    assert module.aligner.grad.tolist() == torch.zeros(5, 4).tolist()  # it has its initial value
