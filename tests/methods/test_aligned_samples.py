"""f-DAN, FDA, f-DANN and FADE: whole runs against reference loops, and figures against the messages that were sent."""

from math import exp

import pytest
import torch

from fedrf.config.loader import load_config
from fedrf.config.registry import METHODS
from fedrf.methods.base import Inbox
from fedrf.methods.sample_mmd import linear_mmd, multi_kernel_mmd
from tests.methods.toys import (
    SOURCES,
    TARGET,
    RecordedRun,
    assert_same_networks,
    classification,
    conditioned_by_hand,
    new_client,
    plain_loop,
    reversed_loss,
    toy,
)

WEIGHT = 0.5
DISTANCES = {"f-dan": multi_kernel_mmd, "fda": linear_mmd}
LOSSY = {"federation__drop": 0.4, "train__rounds": 9}
TARGET_TRAINS = ("aligner", "extractor")


def strength(number, rounds):
    return 2 / (1 + exp(-10 * number / rounds)) - 1


def with_distance(distance):
    def loss(name, model, rows, batch, received):
        distances = [distance(rows, values) for values in received.values()]
        if name == TARGET:
            return WEIGHT * sum(distances) / len(distances) if distances else None
        return classification(model, rows, batch.labels) + WEIGHT * sum(distances)

    return loss


def with_discriminators(name, model, rows, batch, received, rounds=9):
    """A source has one discriminator; the target's are in the order of all sources, even if messages are lost."""
    networks = model.auxiliary["discriminators"]
    order = SOURCES if name == TARGET else (TARGET,)
    losses = [
        reversed_loss(networks[order.index(peer)], rows, values, name != TARGET, strength(batch.round, rounds))
        for peer, values in received.items()
    ]
    total = WEIGHT * sum(losses) / max(1, len(losses))
    if name == TARGET:
        return total if losses else None
    return classification(model, rows, batch.labels) + total


def with_shared_discriminator(is_conditional):
    def loss(name, model, rows, batch, received):
        inputs = conditioned_by_hand(model, rows) if is_conditional else rows
        cross_entropy = reversed_loss(model.auxiliary, inputs, None, name != TARGET, strength(batch.round, 7))
        total = WEIGHT * cross_entropy**2 / 2
        return total if name == TARGET else classification(model, rows, batch.labels) + total

    return loss


@pytest.mark.parametrize("more", [{}, LOSSY], ids=["all messages arrive", "lost messages"])
@pytest.mark.parametrize("method", DISTANCES)
def test_both_sides_descend_the_distance_between_batches(tmp_path, method, more):
    """Messages of peers are constants in the loop: a gradient through them would change the weights."""
    overrides = toy(tmp_path, method, align__weight=WEIGHT, **more)
    loss = with_distance(DISTANCES[method])
    expected = plain_loop(load_config(None, overrides), tmp_path, loss, target_trains=TARGET_TRAINS)
    # A weight whose gradient is almost 0 moves with rounding errors, which Adam enlarges. A tenth more of the distance
    # would change weights by 0.02.
    assert_same_networks(RecordedRun(overrides, tmp_path), expected, 1e-3)


@pytest.mark.parametrize("method", DISTANCES)
def test_figures_are_those_of_the_messages(tmp_path, method):
    run = RecordedRun(toy(tmp_path, method, align__weight=WEIGHT), tmp_path)
    sent = run.sent("features") | run.sent("ciphertexts")
    assert len(sent) == 3 * 7
    assert {values.shape for values in sent.values()} == {(8, 4)}
    distance, figures = DISTANCES[method], run.figures("mmd")
    for number in range(1, 8):
        distances = {name: float(distance(sent[number, name], sent[number, TARGET])) for name in SOURCES}
        for name, value in distances.items():
            assert figures[number, name] == pytest.approx(value, abs=1e-5)
            loss, own = (run.figures(key)[number, name] for key in ("loss", "classification"))
            assert loss == pytest.approx(own + WEIGHT * value, abs=1e-5)
        assert figures[number, TARGET] == pytest.approx(sum(distances.values()) / 2, abs=1e-5)


def test_only_sources_encrypt(tmp_path):
    run = RecordedRun(toy(tmp_path, "fda"), tmp_path)
    assert {name for _, name in run.sent("ciphertexts")} == set(SOURCES)
    assert {name for _, name in run.sent("features")} == {TARGET}


@pytest.mark.parametrize("method", ["f-dan", "fda", "f-dann"])
def test_without_messages_nothing_is_aligned(tmp_path, method):
    config = load_config(None, toy(tmp_path, method))
    for name in ("ward", TARGET):
        module = new_client(config, name, tmp_path).module
        batch = module.samples.batch(1, 8)
        features = module.features(batch.inputs)
        loss = module.method.target_loss if name == TARGET else module.method.source_loss
        terms = loss(module, batch, features, Inbox(module.align(features), is_target=name == TARGET), config)
        if name == TARGET:
            assert "loss" not in terms
        else:
            torch.testing.assert_close(terms["loss"], classification(module, module.align(features), batch.labels))


def test_each_pair_has_a_discriminator_and_keeps_it_when_messages_are_lost(tmp_path):
    overrides = toy(tmp_path, "f-dann", align__weight=WEIGHT, **LOSSY)
    config = load_config(None, overrides)
    expected = plain_loop(config, tmp_path, with_discriminators, target_trains=TARGET_TRAINS)
    run = RecordedRun(overrides, tmp_path)
    assert_same_networks(run, expected, 1e-4)
    arrived = {name: sum(sender == name for _, sender in run.sent("features")) for name in SOURCES}
    assert 0 < min(arrived.values()) < 9
    only_second = [
        {message.sender for message in reply.embeddings} == {"ward"} for reply in run.replies(TARGET, "round").values()
    ]
    assert any(only_second)  # the second of two discriminators is then used, and not the first
    assert "auxiliary" not in run.kinds()


def test_a_source_has_one_discriminator_and_the_target_one_for_each_source():
    config = load_config(None, ["method=f-dann"])
    for peers in (1, 3):
        networks = METHODS.find("f-dann").auxiliary_network(config, peers, 0)["discriminators"]
        assert len(networks) == peers
        assert all(network(torch.zeros(2, 64)).shape == (2, 1) for network in networks)


@pytest.mark.parametrize("method", ["fade-dann", "fade-cdan"])
def test_fade_trains_one_discriminator_with_own_labels_and_averages_it_over_all_clients(tmp_path, method):
    overrides = toy(tmp_path, method, align__weight=WEIGHT)
    config, loss = load_config(None, overrides), with_shared_discriminator(method == "fade-cdan")
    expected = plain_loop(config, tmp_path, loss, target_trains=(*TARGET_TRAINS, "auxiliary"))
    run = RecordedRun(overrides, tmp_path)
    assert_same_networks(run, expected, 1e-4)
    assert not {"features", "mean_embedding", "moments"} & run.kinds()
    networks = run.sent("auxiliary")
    assert set(networks) == {(number, name) for number in (4, 7) for name in (*SOURCES, TARGET)}
    for name in (*SOURCES, TARGET):
        # The target twice: it counts as much as both sources.
        mean = torch.stack([networks[4, sender] for sender in (*SOURCES, TARGET, TARGET)]).mean(0)
        torch.testing.assert_close(torch.tensor(run.replies(name)[4].parts["auxiliary"]), mean)


@pytest.mark.parametrize(("name", "sign"), [("ward", 1), (TARGET, -1)])
def test_a_client_of_fade_alone_teaches_the_discriminator_its_own_domain(tmp_path, name, sign):
    config = load_config(None, toy(tmp_path, "fade-dann"))
    module = new_client(config, name, tmp_path).module
    loss = module.method.target_loss if name == TARGET else module.method.source_loss
    optimizer = torch.optim.Adam(module.auxiliary.parameters(), lr=0.05)
    for number in range(1, 8):
        batch = module.samples.batch(number, 8)
        features = module.features(batch.inputs)
        optimizer.zero_grad()
        loss(module, batch, features, Inbox(features.mean(0)), config)["loss"].backward()
        optimizer.step()
    rows = torch.nn.functional.normalize(torch.randn(50, 4))
    assert (sign * module.auxiliary(rows) > 0).all()  # for any sample; averages correct it
