"""Pooled references: joined samples, the halves of an oracle, and whole runs against reference loops."""

import csv

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.loader import load_config
from fedrf.config.registry import METHODS
from fedrf.data.content import Arrays, ImageFiles
from fedrf.data.domains import POOL, load_domain, load_samples, oracle_halves
from fedrf.data.samples import Samples
from fedrf.federation.channel import Channel
from fedrf.federation.client import in_file
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.worker import open_samples
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.network import DomainModel, NoRandomFeatures
from fedrf.models.parts import named_parts
from fedrf.models.trunk_rows import TrunkRows, trunk_rows
from fedrf.protocol.wire import unpack_call
from tests.methods.toys import (
    COUNTS,
    SOURCES,
    TARGET,
    RecordedRun,
    aligned,
    classification,
    conditioned_by_hand,
    logits_of,
    new_client,
    reversed_loss,
    toy,
)

SAMPLE_BYTES = 5 * 4 + 8  # five numbers and a label
FIVE = (0.25, 0.5, 1, 2, 4)  # widths of DAN's kernels, in units of the mean squared distance
POOL_ALL = ("pooled-ddc", "pooled-dan", "pooled-dann", "pooled-cdan")


@pytest.fixture
def parts(tmp_path):
    """Return four of five images in memory, and two of three images in files."""
    values = np.arange(5, dtype=np.uint8)[:, None, None, None] * np.ones((1, 1, 4, 4), np.uint8)
    first = Samples.all_of(Arrays(values, ["a", "b", "c", "d", "e"]), np.arange(5)).take(np.array([4, 0, 1, 3]))
    for number in range(3):
        Image.new("L", (4, 4), 100 + number).save(tmp_path / f"{number}.png")
    files = ImageFiles(tmp_path, ["0.png", "1.png", "2.png"])
    return first, Samples.all_of(files, np.array([7, 8, 9])).take(np.array([2, 1]))


def test_joined_samples_are_in_the_order_of_their_domains(parts, tmp_path):
    both = Samples.joined(parts)
    assert len(both) == len(both.content) == 6
    assert both.labels.tolist() == [4, 0, 1, 3, 9, 8]
    assert both.names() == ["e", "a", "b", "d", "2.png", "1.png"]
    assert [both.content.image(row).getpixel((0, 0)) for row in both.rows] == [4, 0, 1, 3, 102, 101]
    sizes = sum((tmp_path / name).stat().st_size for name in ("1.png", "2.png"))
    assert both.nbytes == 4 * (16 + 8) + sizes + 2 * 8
    reordered = Samples.joined([parts[0].take(np.array([1, 0, 2, 3])), parts[1]])
    assert reordered.content.fingerprint != both.content.fingerprint
    assert Samples.joined(parts).content.fingerprint == both.content.fingerprint


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).flatmap(
        lambda sizes: st.tuples(st.just(sizes), st.lists(st.integers(0, sum(sizes) - 1), max_size=12))
    )
)
def test_joined_rows_equal_those_of_one_tensor(drawn):
    sizes, positions = drawn
    whole = torch.randn(sum(sizes), 3)
    joined = TrunkRows.joined([TrunkRows.of([part], len(part)) for part in whole.split(sizes)])
    rows = np.array(positions, dtype=np.int64)
    assert len(joined) == len(whole)
    torch.testing.assert_close(joined[rows], whole[rows], rtol=0, atol=0)
    torch.testing.assert_close(torch.cat(list(joined.split(2))), whole, rtol=0, atol=0)


def test_rows_of_a_pool_are_those_of_its_domains(tmp_path):
    config = load_config(None, toy(tmp_path, "pooled"))
    rows = trunk_rows(torch.nn.Identity(), None, load_samples(config, POOL), config.model)
    separate = load_config(None, toy(tmp_path, "fedavg"))
    expected = np.concatenate([load_samples(separate, name).array() for name in SOURCES])
    np.testing.assert_array_equal(rows[np.arange(42)].numpy(), expected)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=40), st.integers(0, 99))
def test_the_halves_of_an_oracle_are_disjoint_and_complete_and_have_the_same_classes(labels, seed):
    labels = np.array(labels)
    samples = Samples.all_of(Arrays(np.zeros((len(labels), 1), np.float32)), labels)
    trained, scored = oracle_halves(samples, seed)
    assert sorted([*trained, *scored]) == list(range(len(labels)))
    assert abs(len(trained) - len(scored)) <= 1
    for label in range(4):
        assert abs((labels[trained] == label).sum() - (labels[scored] == label).sum()) <= 2
    for half, again in zip((trained, scored), oracle_halves(samples, seed), strict=True):
        np.testing.assert_array_equal(half, again)


def test_an_oracle_needs_labels():
    with pytest.raises(ValueError, match="an oracle needs labels of the target, which has none"):
        oracle_halves(Samples.all_of(Arrays(np.zeros((4, 1), np.float32)), None), 0)


def test_accuracy_of_some_positions_by_hand():
    predicted = torch.tensor([0, 1, 2, 0])
    assert Evaluator(np.array([0, 1, 0, 1]))(predicted) == 0.5
    assert Evaluator(np.array([0, 1, 0, 1]), np.array([0, 1, 3]))(predicted) == pytest.approx(2 / 3)
    assert Evaluator(None, np.array([0]))(predicted) is None


def opened(tmp_path, method, name):
    """Return the samples that a client of a run is given, and the calls that count samples moved to it."""
    config, calls = load_config(None, toy(tmp_path, method)), []
    info = ClientInfo(name, (POOL,), TARGET, tmp_path)
    channel = Channel(info, lambda content: calls.append(unpack_call(content, 10**6)), 1)
    samples = open_samples(config, channel)
    return samples, [(call.name, call.sender, *call.arguments) for call in calls if call.name == "count_samples"]


@pytest.mark.parametrize("method", ["pooled", *POOL_ALL, "target-oracle"])
def test_only_the_oracle_gets_labels_of_the_target(tmp_path, method):
    target = load_samples(load_config(None, toy(tmp_path, method)), TARGET)
    at_target, counted = opened(tmp_path, method, TARGET)
    assert at_target.samples.labels is None
    assert at_target.target_samples is None
    assert counted == []
    pool, counted = opened(tmp_path, method, POOL)
    if method == "target-oracle":
        trained, _ = oracle_halves(target, 0)
        np.testing.assert_array_equal(pool.samples.array(), target.array()[trained])
        np.testing.assert_array_equal(pool.samples.labels, target.labels[trained])
    else:
        assert len(pool.samples) == COUNTS["clinic"] + COUNTS["ward"]
    if method in POOL_ALL:
        np.testing.assert_array_equal(pool.target_samples.array(), target.array())
        assert pool.target_samples.labels is None
    else:
        assert pool.target_samples is None
    assert counted == [("count_samples", POOL, moved_bytes(method))]


def moved_bytes(method):
    own = 10 if method == "target-oracle" else 42
    without_labels = 20 if method in POOL_ALL else 0
    return own * SAMPLE_BYTES + without_labels * (SAMPLE_BYTES - 8)


@torch.no_grad()
def copy_parameters(source, destination):
    for value, other in zip(destination.parameters(), source.parameters(), strict=True):
        value.copy_(other)


def pooled_loop(config, folder, loss):
    """Train one network by Adam; return it, and its state after round 6, when the target received it last.

    DANN and CDAN lower all rates over the rounds, and that of the extractor to a tenth (Ganin et al. 2016).
    """
    pools_all = config.method in POOL_ALL
    target_samples = load_samples(config, TARGET).without_labels() if pools_all else None
    model, received = (new_client(config, POOL, folder, target_samples).module for _ in range(2))
    is_adversarial = config.method in ("pooled-dann", "pooled-cdan")
    rates = {part: 0.1 if is_adversarial and part == "extractor" else 1.0 for part in named_parts(model)}
    groups = [{"params": list(values.values()), "part": part} for part, values in named_parts(model).items() if values]
    optimizer = torch.optim.Adam(groups)
    for number in range(1, 8):
        for group in optimizer.param_groups:
            decay = (1 + 10 * number / 7) ** -0.75 if is_adversarial else 1.0
            group["lr"] = config.train.lr * rates[group["part"]] * decay
        batch = model.samples.batch(number, 8)
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
        if number == 6:
            copy_parameters(model, received)
    return model, received


def supervised(model, batch):
    return classification(model, aligned(model, batch.inputs), batch.labels)


def adversarial(is_conditional):
    def loss(model, batch):
        strength = 2 / (1 + np.exp(-10 * batch.round / 7)) - 1
        total = 0.0
        for inputs, is_source in ((batch.inputs, True), (batch.target_inputs, False)):
            rows = aligned(model, inputs)
            rows = conditioned_by_hand(model, rows) if is_conditional else rows
            total = total + reversed_loss(model.auxiliary, rows, None, is_source, strength) / 2
        return supervised(model, batch) + 0.5 * total

    return loss


def mmd_by_hand(rows, others, factors):
    """Return the MMD for the mean of Gaussian kernels, as means over all pairs; widths are constants."""
    count, both = len(rows) + len(others), (rows, others)
    squared = [[((one[:, None] - other[None]) ** 2).sum(2) for other in both] for one in both]
    width = sum(part.detach().sum() for row in squared for part in row) / (count * (count - 1))
    (own, cross), (_, other) = [
        [sum((-part / (factor * width)).exp().mean() for factor in factors) / len(factors) for part in row]
        for row in squared
    ]
    return own + other - 2 * cross


def with_mmd(discrepancy):
    def loss(model, batch):
        rows, others = aligned(model, batch.inputs), aligned(model, batch.target_inputs)
        return supervised(model, batch) + 0.5 * discrepancy(model, rows, others)

    return loss


def ddc(model, rows, others):
    return mmd_by_hand(rows, others, (1,))


def dan(model, rows, others):
    on_logits = mmd_by_hand(logits_of(model, rows), logits_of(model, others), FIVE)
    return mmd_by_hand(rows, others, FIVE) + on_logits


@pytest.mark.parametrize(
    ("method", "loss"),
    [
        ("pooled", supervised),
        ("pooled-ddc", with_mmd(ddc)),
        ("pooled-dan", with_mmd(dan)),
        ("pooled-dann", adversarial(False)),
        ("pooled-cdan", adversarial(True)),
        ("target-oracle", supervised),
    ],
)
def test_a_run_equals_centralised_training(tmp_path, method, loss):
    """With MMD or a discriminator, W and G also learn from the samples of the target."""
    overrides = toy(tmp_path, method, align__weight=0.5)
    config = load_config(None, overrides)
    model, received = pooled_loop(config, tmp_path, loss)
    run = RecordedRun(overrides, tmp_path)
    for name, expected in ((POOL, model), (TARGET, received)):
        weights = run.weights(name)
        for key, value in expected.named_parameters():
            if name == POOL or not key.startswith("auxiliary"):
                torch.testing.assert_close(weights[in_file(key)], value.detach(), rtol=0, atol=1e-4)
    assert run.result.summary["communication"]["by_direction"]["up"]["samples"] == moved_bytes(method)
    with open(run.result.folder / "predictions.csv") as file:
        predicted = np.array([int(row["predicted"]) for row in csv.DictReader(file)])
    target, in_file_order = load_samples(config, TARGET), load_domain(config.data, TARGET).labels
    scored = target.rows[oracle_halves(target, 0)[1]] if method == "target-oracle" else np.arange(20)
    assert run.result.target_accuracy == pytest.approx((predicted == in_file_order)[scored].mean())


def test_the_layers_of_dan_are_the_aligned_features_and_the_logits_of_any_classifier():
    torch.manual_seed(0)
    model = DomainModel(make_extractor("identity", (5,)), NoRandomFeatures(5), 4, 3, classifier="mlp", scale=2.0)
    rows, others = torch.randn(6, 4), torch.randn(3, 4) + 1

    def logits(values):
        first, second, last = ((layer.weight.T, layer.bias) for layer in model.classifier[::2])
        hidden = (2.0 * values @ first[0] + first[1]).relu()
        return (hidden @ second[0] + second[1]).relu() @ last[0] + last[1]

    expected = mmd_by_hand(rows, others, FIVE) + mmd_by_hand(logits(rows), logits(others), FIVE)
    torch.testing.assert_close(METHODS.find("pooled-dan").discrepancy(model, rows, others), expected)
