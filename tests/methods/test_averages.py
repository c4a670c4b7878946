"""FedAvg, one average, FedSGD and FedProx against plain loops over two sources of unequal size."""

import numpy as np
import pytest
import torch

from fedrf.config.loader import load_config
from fedrf.protocol.messages import Reply
from tests.methods.toys import (
    COUNTS,
    NETWORK,
    SOURCES,
    TARGET,
    Sniffed,
    aligned,
    assert_same_networks,
    classification,
    new_client,
    plain_loop,
    toy,
)


def source_loss(name, model, rows, batch, sent):
    return None if name == TARGET else classification(model, rows, batch.labels)


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
def test_networks_are_averaged_by_sample_counts(tmp_path, method, more):
    overrides = toy(tmp_path, method, **more)
    expected = plain_loop(load_config(None, overrides), tmp_path, source_loss, COUNTS.get)
    run = Sniffed(overrides, tmp_path)
    assert_same_networks(run, expected)
    # The loop tells weights by counts from equal ones.
    equal = plain_loop(load_config(None, overrides), tmp_path, source_loss)
    assert not torch.allclose(equal[TARGET].aligner, expected[TARGET].aligner, atol=1e-3)


def test_one_average_is_sent_once_after_the_last_round(tmp_path):
    run = Sniffed(toy(tmp_path, "source-average", federation__classifier_interval="last"), tmp_path)
    for kind in NETWORK:
        assert set(run.sent(kind)) == {(8, name) for name in SOURCES}


def test_fedsgd_descends_the_average_gradient_of_one_common_model(tmp_path):
    overrides = toy(tmp_path, "fedsgd", federation__classifier_interval=1)
    config = load_config(None, overrides)
    clients = {name: new_client(config, name, tmp_path) for name in SOURCES}
    common = new_client(config, TARGET, tmp_path).model
    common.adapter.requires_grad_(True)
    parameters = [one for kind in NETWORK for one in common.parts()[kind]]
    first = [one.detach().clone() for one in parameters]
    for number in range(1, config.train.rounds + 1):
        gradients = [torch.zeros_like(one) for one in parameters]
        for name, client in clients.items():
            batch = client.batch(number, config.train.batch_size)
            loss = classification(common, aligned(common, batch.inputs), batch.labels)
            for total, one in zip(gradients, torch.autograd.grad(loss, parameters), strict=True):
                total += COUNTS[name] / sum(COUNTS[one] for one in SOURCES) * one
        with torch.no_grad():
            for one, gradient in zip(parameters, gradients, strict=True):
                one -= 100 * config.train.lr * gradient
    assert all((one - before).abs().max() > 1e-2 for one, before in zip(parameters, first, strict=True))
    assert_same_networks(Sniffed(overrides, tmp_path), dict.fromkeys((*SOURCES, TARGET), common), 2e-4)


def proximal_loop(config, folder):
    """FedAvg by Adam, with μ · (w − the average that came last) added to the gradients."""
    averages = {}

    def loss(name, model, rows, batch, sent):
        if name == TARGET:
            return None
        own = torch.cat([one.flatten() for kind in NETWORK for one in model.parts()[kind]])
        if (batch.round - 1) % 3 == 0:  # in round 1 they are all where they begin
            averages[name] = own.detach().clone()
        pull = config.train.proximal * (own.detach() - averages[name]) @ own
        return classification(model, rows, batch.labels) + pull

    return plain_loop(config, folder, loss, COUNTS.get)


def test_fedprox_pulls_towards_the_average_that_came_last(tmp_path):
    """Three rounds lie between averages: the anchor stays while the clients move."""
    overrides = toy(tmp_path, "fedprox", train__proximal=0.7, train__rounds=9)
    expected = proximal_loop(load_config(None, overrides), tmp_path)
    assert_same_networks(Sniffed(overrides, tmp_path), expected)


def test_the_stronger_the_pull_the_nearer_clients_stay(tmp_path):
    drift = {}
    for pull in (0.0, 10.0):
        far_apart = {"train__rounds": 20, "federation__classifier_interval": 10}
        run = Sniffed(toy(tmp_path, "fedprox", train__proximal=pull, **far_apart), tmp_path / f"{pull}")
        last = run.replies(TARGET)[11].parts
        moved = [run.sent(kind)[21, name] - torch.tensor(last[kind]) for kind in NETWORK for name in SOURCES]
        drift[pull] = float(torch.cat([one.flatten() for one in moved]).norm())
    assert drift[10.0] < drift[0.0] / 2


def test_the_pull_of_fedprox_by_hand(tmp_path):
    config = load_config(None, toy(tmp_path, "fedprox", train__proximal=0.5))
    client = new_client(config, "ward", tmp_path)
    model = client.model
    client._follow(model, Reply(parts={"classifier": np.zeros(15, np.float32)}))
    with torch.no_grad():
        model.classifier.weight.fill_(2.0)  # 3 × 4 of them; biases stay at 0
    drift = client._drift(model)
    assert float(drift.detach()) == pytest.approx(12 * 2.0**2)
    drift.backward()
    torch.testing.assert_close(model.classifier.weight.grad, torch.full((3, 4), 2 * 2.0))
    assert model.aligner.grad.tolist() == torch.zeros(5, 4).tolist()  # it is where it began
