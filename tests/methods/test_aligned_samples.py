"""f-DAN, FDA, f-DANN and FADE: whole runs against plain loops, and their figures against what was really sent."""

from math import exp

import pytest
import torch

from fedrf.config.loader import load_config
from fedrf.config.presets import FEATURES_OF_TARGET
from fedrf.methods import METHODS, Inbox
from fedrf.methods.f_dann import Discriminators
from fedrf.methods.sample_mmd import linear_mmd, multi_kernel_mmd
from tests.methods.toys import (
    CLASSES,
    SOURCES,
    TARGET,
    Sniffed,
    assert_same_networks,
    classification,
    new_client,
    plain_loop,
    reversed_loss,
    toy,
)

WEIGHT = 0.5
DISTANCES = {"f-dan": multi_kernel_mmd, "fda": linear_mmd}
LOSSY = {"federation__drop": 0.4, "train__rounds": 9}


def strength(number, rounds):
    return 2 / (1 + exp(-10 * number / rounds)) - 1


def with_distance(distance):
    def loss(name, model, rows, batch, sent):
        apart = [distance(rows, one) for one in sent.values()]
        if name == TARGET:
            return WEIGHT * sum(apart) / len(apart) if apart else None
        return classification(model, rows, batch.labels) + WEIGHT * sum(apart)

    return loss


def with_discriminators(name, model, rows, batch, sent, rounds=9):
    """A source has one discriminator; the target's are in the order of all sources, whoever's message is lost."""
    networks = model.companion.discriminators
    order = SOURCES if name == TARGET else (TARGET,)
    confused = [
        reversed_loss(networks[order.index(peer)], rows, values, name != TARGET, strength(batch.round, rounds))
        for peer, values in sent.items()
    ]
    total = WEIGHT * sum(confused) / max(1, len(confused))
    if name == TARGET:
        return total if confused else None
    return classification(model, rows, batch.labels) + total


def with_one_discriminator(is_conditional):
    def loss(name, model, rows, batch, sent):
        shown = rows
        if is_conditional:
            chances = (10 * rows @ model.classifier.weight.T + model.classifier.bias).softmax(1).detach()
            shown = torch.cat([chances[:, c, None] * rows for c in range(CLASSES)], dim=1)
        wrong = reversed_loss(model.companion, shown, None, name != TARGET, strength(batch.round, 7))
        total = WEIGHT * wrong**2 / 2
        return total if name == TARGET else classification(model, rows, batch.labels) + total

    return loss


@pytest.mark.parametrize("more", [{}, LOSSY], ids=["all arrive", "lost messages"])
@pytest.mark.parametrize("method", DISTANCES)
def test_distances_between_batches_are_descended_by_both_sides(tmp_path, method, more):
    """What peers sent is constant in the loop: were there a gradient through it, weights would differ."""
    overrides = toy(tmp_path, method, align__weight=WEIGHT, **more)
    loss = with_distance(DISTANCES[method])
    expected = plain_loop(load_config(None, overrides), tmp_path, loss, target_trains=FEATURES_OF_TARGET)
    assert_same_networks(Sniffed(overrides, tmp_path), expected, 1e-4)


@pytest.mark.parametrize("method", DISTANCES)
def test_figures_are_those_of_what_was_sent(tmp_path, method):
    run = Sniffed(toy(tmp_path, method, align__weight=WEIGHT), tmp_path)
    sent = run.sent("features") | run.sent("ciphertexts")
    assert len(sent) == 3 * 7
    assert {one.shape for one in sent.values()} == {(8, 4)}
    distance, figures = DISTANCES[method], run.figures("mmd")
    for number in range(1, 8):
        apart = {name: float(distance(sent[number, name], sent[number, TARGET])) for name in SOURCES}
        for name, value in apart.items():
            assert figures[number, name] == pytest.approx(value, abs=1e-5)
            loss, own = (run.figures(key)[number, name] for key in ("loss", "classification"))
            assert loss == pytest.approx(own + WEIGHT * value, abs=1e-5)
        assert figures[number, TARGET] == pytest.approx(sum(apart.values()) / 2, abs=1e-5)


def test_only_sources_encrypt(tmp_path):
    run = Sniffed(toy(tmp_path, "fda"), tmp_path)
    assert {name for _, name in run.sent("ciphertexts")} == set(SOURCES)
    assert {name for _, name in run.sent("features")} == {TARGET}


@pytest.mark.parametrize("method", ["f-dan", "fda", "f-dann"])
def test_without_a_message_there_is_nothing_to_align(tmp_path, method):
    config = load_config(None, toy(tmp_path, method))
    for name in ("ward", TARGET):
        client = new_client(config, name, tmp_path)
        model, batch = client.model, client.batch(1, 8)
        features = model.features(batch.inputs)
        loss = METHODS[method].target_loss if name == TARGET else METHODS[method].source_loss
        terms = loss(model, batch, features, Inbox(model.align(features), is_target=name == TARGET), config)
        if name == TARGET:
            assert "loss" not in terms
        else:
            torch.testing.assert_close(terms["loss"], classification(model, model.align(features), batch.labels))


def test_each_pair_has_a_discriminator_and_keeps_it_when_messages_are_lost(tmp_path):
    overrides = toy(tmp_path, "f-dann", align__weight=WEIGHT, **LOSSY)
    config = load_config(None, overrides)
    expected = plain_loop(config, tmp_path, with_discriminators, target_trains=FEATURES_OF_TARGET)
    run = Sniffed(overrides, tmp_path)
    assert_same_networks(run, expected, 1e-4)
    came = {name: sum(sender == name for _, sender in run.sent("features")) for name in SOURCES}
    assert 0 < min(came.values()) < 9
    seen_alone = [
        {one.sender for one in reply.embeddings} == {"ward"} for reply in run.replies(TARGET, "round").values()
    ]
    assert any(seen_alone)  # then the second of two discriminators, and not the first
    assert "companion" not in run.kinds()


def test_a_source_has_one_discriminator_and_the_target_one_for_each_source():
    config = load_config(None, ["method=f-dann"])
    for peers in (1, 3):
        networks = Discriminators(config, peers, 0).discriminators
        assert len(networks) == peers
        assert all(one(torch.zeros(2, 64)).shape == (2, 1) for one in networks)


@pytest.mark.parametrize("method", ["fade-dann", "fade-cdan"])
def test_fade_trains_one_discriminator_with_own_labels_and_averages_it_over_all(tmp_path, method):
    overrides = toy(tmp_path, method, align__weight=WEIGHT)
    config, loss = load_config(None, overrides), with_one_discriminator(method == "fade-cdan")
    expected = plain_loop(config, tmp_path, loss, target_trains=(*FEATURES_OF_TARGET, "companion"))
    run = Sniffed(overrides, tmp_path)
    assert_same_networks(run, expected, 1e-4)
    assert not {"features", "mean_embedding", "moments"} & run.kinds()
    companions = run.sent("companion")
    assert set(companions) == {(number, name) for number in (4, 7) for name in (*SOURCES, TARGET)}
    for name in (*SOURCES, TARGET):
        # Twice the target: both sides count alike.
        mean = torch.stack([companions[4, one] for one in (*SOURCES, TARGET, TARGET)]).mean(0)
        torch.testing.assert_close(torch.tensor(run.replies(name)[4].parts["companion"]), mean)


@pytest.mark.parametrize(("name", "sign"), [("ward", 1), (TARGET, -1)])
def test_by_itself_a_client_of_fade_teaches_the_discriminator_its_own_label(tmp_path, name, sign):
    config = load_config(None, toy(tmp_path, "fade-dann"))
    client = new_client(config, name, tmp_path)
    model, method = client.model, METHODS["fade-dann"]
    loss = method.target_loss if name == TARGET else method.source_loss
    optimizer = torch.optim.Adam(model.companion.parameters(), lr=0.05)
    for number in range(1, 8):
        batch = client.batch(number, 8)
        features = model.features(batch.inputs)
        optimizer.zero_grad()
        loss(model, batch, features, Inbox(features.mean(0)), config)["loss"].backward()
        optimizer.step()
    rows = torch.nn.functional.normalize(torch.randn(50, 4))
    assert (sign * model.companion(rows) > 0).all()  # of everything: averages do the rest
