"""Pooled references: samples of several domains as one, halves of an oracle, and whole runs against plain loops."""

import csv

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.loader import load_config
from fedrf.data.domains import POOL, load_samples, oracle_halves
from fedrf.data.samples import Arrays, ImageFiles, Samples
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.worker import _open
from fedrf.models.trunk_rows import TrunkRows, trunk_rows
from tests.methods.toys import (
    CLASSES,
    COUNTS,
    SOURCES,
    TARGET,
    Sniffed,
    aligned,
    classification,
    new_client,
    reversed_loss,
    toy,
)

BYTES = 5 * 4 + 8  # of a sample: five numbers, and its label


@pytest.fixture
def parts(tmp_path):
    """Four of five pictures in memory, and two of three in files."""
    values = np.arange(5, dtype=np.uint8)[:, None, None, None] * np.ones((1, 1, 4, 4), np.uint8)
    first = Samples.all_of(Arrays(values, ["a", "b", "c", "d", "e"]), np.arange(5)).take(np.array([4, 0, 1, 3]))
    for number in range(3):
        Image.new("L", (4, 4), 100 + number).save(tmp_path / f"{number}.png")
    files = ImageFiles(tmp_path, ["0.png", "1.png", "2.png"])
    return first, Samples.all_of(files, np.array([7, 8, 9])).take(np.array([2, 1]))


def test_joined_samples_are_one_domain_after_the_other(parts, tmp_path):
    both = Samples.joined(parts)
    assert len(both) == len(both.content) == 6
    assert both.labels.tolist() == [4, 0, 1, 3, 9, 8]
    assert both.names() == ["e", "a", "b", "d", "2.png", "1.png"]
    assert [both.content.image(row).getpixel((0, 0)) for row in both.rows] == [4, 0, 1, 3, 102, 101]
    sizes = sum((tmp_path / name).stat().st_size for name in ("1.png", "2.png"))
    assert both.nbytes == 4 * (16 + 8) + sizes + 2 * 8
    again = Samples.joined([parts[0].take(np.array([1, 0, 2, 3])), parts[1]])
    assert again.content.fingerprint != both.content.fingerprint
    assert Samples.joined(parts).content.fingerprint == both.content.fingerprint


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).flatmap(
        lambda sizes: st.tuples(st.just(sizes), st.lists(st.integers(0, sum(sizes) - 1), max_size=12))
    )
)
def test_joined_rows_are_those_of_one_tensor(drawn):
    sizes, wanted = drawn
    whole = torch.randn(sum(sizes), 3)
    joined = TrunkRows.joined([TrunkRows.of(one) for one in whole.split(sizes)])
    rows = np.array(wanted, dtype=np.int64)
    assert len(joined) == len(whole)
    torch.testing.assert_close(joined[rows], whole[rows], rtol=0, atol=0)
    torch.testing.assert_close(torch.cat(list(joined.split(2))), whole, rtol=0, atol=0)


def test_each_domain_goes_through_the_layers_on_its_own(tmp_path):
    config = load_config(None, toy(tmp_path, "pooled"))
    rows = trunk_rows(torch.nn.Identity(), None, load_samples(config, POOL), config.model)
    alone = load_config(None, toy(tmp_path, "fedavg")).data
    expected = np.concatenate([load_samples(alone, name).array() for name in SOURCES])
    np.testing.assert_array_equal(rows[np.arange(42)].numpy(), expected)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=40), st.integers(0, 99))
def test_the_halves_of_an_oracle_are_disjoint_cover_all_and_have_the_same_classes(labels, seed):
    labels = np.array(labels)
    samples = Samples.all_of(Arrays(np.zeros((len(labels), 1), np.float32)), labels)
    trained, scored = oracle_halves(samples, seed)
    assert sorted([*trained, *scored]) == list(range(len(labels)))
    assert abs(len(trained) - len(scored)) <= 1
    for name in range(4):
        assert abs((labels[trained] == name).sum() - (labels[scored] == name).sum()) <= 2
    for half, again in zip((trained, scored), oracle_halves(samples, seed), strict=True):
        np.testing.assert_array_equal(half, again)


def test_an_oracle_needs_labels():
    with pytest.raises(ValueError, match="oracle needs labels of the target, and there are none"):
        oracle_halves(Samples.all_of(Arrays(np.zeros((4, 1), np.float32)), None), 0)


def test_accuracy_of_some_positions_by_hand():
    guesses = torch.tensor([0, 1, 2, 0])
    assert Evaluator(np.array([0, 1, 0, 1]))(guesses) == 0.5
    assert Evaluator(np.array([0, 1, 0, 1]), np.array([0, 1, 3]))(guesses) == pytest.approx(2 / 3)
    assert Evaluator(None, np.array([0]))(guesses) is None


def opened(tmp_path, method, name):
    """What a client of a run is given, and what it says was moved to it."""
    config, told = load_config(None, toy(tmp_path, method)), []
    place = ClientInfo(name, (POOL,), TARGET, tmp_path)
    given = _open(config, place, lambda *call: told.append(call))
    return given, [call for call in told if call[0] == "move"]


@pytest.mark.parametrize("method", ["pooled", "pooled-dann", "pooled-cdan", "target-oracle"])
def test_labels_of_the_target_are_for_the_oracle_alone(tmp_path, method):
    config = load_config(None, toy(tmp_path, method))
    target = load_samples(config, TARGET)
    at_target, told = opened(tmp_path, method, TARGET)
    assert at_target.samples.labels is None
    assert at_target.foreign is None
    assert told == []
    pool, told = opened(tmp_path, method, POOL)
    if method == "target-oracle":
        trained, _ = oracle_halves(target, 0)
        np.testing.assert_array_equal(pool.samples.array(), target.array()[trained])
        np.testing.assert_array_equal(pool.samples.labels, target.labels[trained])
        moved = 10 * BYTES
    else:
        assert len(pool.samples) == COUNTS["clinic"] + COUNTS["ward"]
        moved = 42 * BYTES
    if method in ("pooled-dann", "pooled-cdan"):
        np.testing.assert_array_equal(pool.foreign.array(), target.array())
        assert pool.foreign.labels is None
        moved += 20 * (BYTES - 8)
    else:
        assert pool.foreign is None
    assert told == [("move", POOL, moved)]


@torch.no_grad()
def copied(model, other):
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        one.copy_(two)


def pooled_loop(config, folder, loss):
    """One network trained by Adam; returns it, and as it was after round 6, when the target got it last."""
    foreign = load_samples(config, TARGET).without_labels() if config.data.pooled == "all" else None
    client = new_client(config, POOL, folder, foreign)
    model = client.model
    received = new_client(config, POOL, folder, foreign).model
    optimizer = torch.optim.Adam([one for part in model.parts().values() for one in part], lr=config.train.lr)
    for number in range(1, 8):
        batch = client.batch(number, 8)
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
        if number == 6:
            copied(received, model)
    return model, received


def supervised(model, batch):
    return classification(model, aligned(model, batch.inputs), batch.labels)


def against_the_target(is_conditional):
    def loss(model, batch):
        strength = 2 / (1 + np.exp(-10 * batch.round / 7)) - 1
        confused = 0.0
        for inputs, label in ((batch.inputs, True), (batch.foreign, False)):
            rows = aligned(model, inputs)
            if is_conditional:
                chances = (10 * rows @ model.classifier.weight.T + model.classifier.bias).softmax(1).detach()
                rows = torch.cat([chances[:, c, None] * rows for c in range(CLASSES)], dim=1)
            confused = confused + reversed_loss(model.companion, rows, None, label, strength) / 2
        return supervised(model, batch) + 0.5 * confused

    return loss


@pytest.mark.parametrize(
    ("method", "loss"),
    [
        ("pooled", supervised),
        ("pooled-dann", against_the_target(False)),
        ("pooled-cdan", against_the_target(True)),
        ("target-oracle", supervised),
    ],
)
def test_one_network_is_trained_as_anywhere_else(tmp_path, method, loss):
    """With a discriminator, W and G also learn from the samples of the target: both domains are to look alike."""
    overrides = toy(tmp_path, method, align__weight=0.5)
    config = load_config(None, overrides)
    model, received = pooled_loop(config, tmp_path, loss)
    run = Sniffed(overrides, tmp_path)
    for name, expected in ((POOL, model), (TARGET, received)):
        weights = run.weights(name)
        for key, value in expected.named_parameters():
            if name == POOL or not key.startswith("companion"):
                torch.testing.assert_close(weights[key], value.detach(), rtol=0, atol=1e-4)
    moved = run.result.summary["communication"]["by_direction"]["up"]["samples"]
    own = {"target-oracle": 10 * BYTES}.get(method, 42 * BYTES)
    assert moved == own + (20 * (BYTES - 8) if method in ("pooled-dann", "pooled-cdan") else 0)
    with open(run.result.folder / "predictions.csv") as file:
        guesses = np.array([int(row["predicted"]) for row in csv.DictReader(file)])
    target = load_samples(config, TARGET)
    scored = oracle_halves(target, 0)[1] if method == "target-oracle" else np.arange(20)
    assert run.result.target_accuracy == pytest.approx((guesses == target.labels)[scored].mean())
