"""Additive statistics of sources, and the classifier that follows from them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from fedrf.tca.class_sums import ClassSums, class_weights, sums_of_source
from fedrf.tca.source_statistics import (
    DEFAULT_RIDGE,
    MAX_WEIGHT_RATIO,
    RIDGES,
    FactoredStatistics,
    SourceStatistics,
    between_classes,
    choose_ridge,
    low_rank,
    reduce_factored,
    source_weights,
    total_of,
)

SIZE, CLASSES = 12, 3


def unit_rows(count, seed=0, size=SIZE):
    rows = np.random.RandomState(seed).randn(count, size)
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def labelled(count, seed=0):
    return unit_rows(count, seed), torch.from_numpy(np.random.RandomState(seed + 100).randint(0, CLASSES, count))


def statistics_of(features, labels):
    return sums_of_source([(features, labels)], labels, CLASSES).centred()


def source(count, seed=0):
    return statistics_of(*labelled(count, seed))


def test_class_sums_by_hand():
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    sums = ClassSums.of(features, labels, torch.tensor([1.0, 0.5]))
    assert sums.weights.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(sums.totals.numpy(), [[1.0, 0.3], [0.0, 0.9]])
    np.testing.assert_allclose(sums.gram.numpy(), [[1 + 0.18, 0.24], [0.24, 0.5 + 0.32]])


def test_weights_are_inverse_square_roots_of_class_sizes():
    labels = torch.tensor([0, 0, 0, 0, 2])
    assert class_weights(labels, 4).tolist() == [0.5, 0.0, 1.0, 0.0]


@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.integers(1, 59), max_size=4, unique=True), seed=st.integers(0, 100))
def test_pieces_of_a_source_add_up_and_can_be_subtracted(cuts, seed):
    features, labels = labelled(60, seed)
    weights = class_weights(labels, CLASSES)
    whole = ClassSums.of(features, labels, weights)
    edges = [0, *sorted(cuts), 60]
    pieces = [ClassSums.of(features[a:b], labels[a:b], weights) for a, b in pairwise(edges)]
    total = sum(pieces[1:], pieces[0])
    for attribute in ("weights", "totals", "gram"):
        torch.testing.assert_close(getattr(total, attribute), getattr(whole, attribute))
        rest = getattr(whole - pieces[0], attribute)
        torch.testing.assert_close(rest, getattr(whole, attribute) - getattr(pieces[0], attribute))


@settings(deadline=None, max_examples=50)
@given(count=st.integers(1, 12), seed=st.integers(0, 1000), aligned=st.booleans())
def test_one_more_sample_changes_sums_by_at_most_the_sensitivity(count, seed, aligned):
    """The worst case is reached: equal features of one class, and a new sample in the opposite direction."""
    features, labels = labelled(count + 1, seed)
    if aligned:
        features = features[:1].repeat(count + 1, 1)
        features[-1] *= -1
        labels = torch.zeros_like(labels)

    def sums(number):
        return ClassSums.of(features[:number], labels[:number], class_weights(labels[:number], CLASSES))

    before, after = sums(count), sums(count + 1)
    for attribute in ("weights", "totals", "gram"):
        change = (getattr(after, attribute) - getattr(before, attribute)).norm()
        assert change <= ClassSums.sensitivity + 1e-12


def test_covariances_are_those_of_numpy():
    features, labels = labelled(50)
    sums = sums_of_source([(features[:20], labels[:20]), (features[20:], labels[20:])], labels, CLASSES)
    statistics = sums.centred()
    counts = np.bincount(labels, minlength=CLASSES)
    weights = counts[labels] ** -0.5
    indicators = np.eye(CLASSES)[labels]
    both = np.cov(np.hstack([features.numpy(), indicators]).T, aweights=weights, ddof=0)
    np.testing.assert_allclose(statistics.covariance, both[:SIZE, :SIZE], atol=1e-12)
    np.testing.assert_allclose(statistics.class_covariance, both[:SIZE, SIZE:], atol=1e-12)
    np.testing.assert_allclose(sums.mean, np.average(features, axis=0, weights=weights))
    np.testing.assert_allclose(sums.shares, np.average(indicators, axis=0, weights=weights))


def test_the_map_is_that_of_a_ridge_regression_on_pooled_centred_samples():
    """For sources of equal size and equal classes, where weights do not matter."""
    rows, targets, total = [], [], None
    for seed in range(3):
        features, labels = unit_rows(30, seed), torch.arange(30) % CLASSES
        statistics = statistics_of(features, labels)
        total = statistics if total is None else total + statistics
        indicators = np.eye(CLASSES)[labels]
        rows.append(features.numpy() - features.numpy().mean(0))
        targets.append(indicators - indicators.mean(0))
    samples = np.vstack(rows)
    scale = np.mean(np.diag(samples.T @ samples))
    model = Ridge(alpha=0.3 * scale, fit_intercept=False).fit(samples, np.vstack(targets))
    np.testing.assert_allclose(total.class_map(0.3), model.coef_.T, atol=1e-9)


def test_removing_a_source_is_the_federation_without_it():
    sources = [source(40 + 10 * seed, seed) for seed in range(3)]
    everything = sources[0] + sources[1] + sources[2]
    without = everything - sources[1]
    assert without.weight == 2
    np.testing.assert_allclose(without.class_map(1.0), (sources[0] + sources[2]).class_map(1.0), rtol=1e-9, atol=1e-12)


def test_statistics_of_different_sizes_are_not_added():
    with pytest.raises(ValueError, match="numbers of features and classes must be the same"):
        source(10) + SourceStatistics.of_source(np.zeros((SIZE, CLASSES + 1)), np.eye(SIZE))


def test_the_error_on_a_source_is_the_squared_error_of_its_samples():
    features, labels = unit_rows(30), torch.arange(30) % CLASSES
    statistics = statistics_of(features, labels)
    indicators, rows = np.eye(CLASSES)[labels], features.numpy()

    def squared(class_map):
        residual = (indicators - indicators.mean(0)) - (rows - rows.mean(0)) @ class_map
        return np.square(residual).sum() / len(rows)

    maps = [np.random.RandomState(seed).randn(SIZE, CLASSES) for seed in range(2)]
    difference = statistics.squared_error(maps[0]) - statistics.squared_error(maps[1])
    assert difference == pytest.approx(squared(maps[0]) - squared(maps[1]))


@pytest.mark.parametrize("source_weights", [(1.0, 1.0, 1.0), (2.5, 0.4, 0.1)])
@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_the_ridge_is_the_best_for_sources_that_are_left_out(noise, source_weights):
    """Sources that agree need a small ridge; sources that do not need a larger one."""
    random, sources, samples = np.random.RandomState(0), [], []
    common = random.randn(SIZE, CLASSES)
    for seed in range(3):
        rows = unit_rows(60, seed).numpy()
        labels = np.argmax(rows @ (common + noise * random.randn(SIZE, CLASSES)), axis=1)
        sources.append(statistics_of(torch.from_numpy(rows), torch.from_numpy(labels)))
        weights = np.bincount(labels, minlength=CLASSES)[labels] ** -0.5
        samples.append((rows, np.eye(CLASSES)[labels], weights / weights.sum()))

    def left_out_error(ridge):
        error = 0.0
        for left_out, (rows, indicators, weights) in enumerate(samples):
            others = [(a, *sample) for a, sample in zip(source_weights, samples, strict=True)]
            others.pop(left_out)
            first = sum(a * np.cov(x.T, aweights=w, ddof=0) for a, x, _, w in others)
            second = sum(a * ((x - w @ x).T * w) @ (y - w @ y) for a, x, y, w in others)
            fitted = np.linalg.solve(first + ridge * np.mean(np.diag(first)) * np.eye(SIZE), second)
            residual = (indicators - weights @ indicators) - (rows - weights @ rows) @ fitted
            error += source_weights[left_out] * (weights @ np.square(residual).sum(1))
        return error

    assert choose_ridge(sources, source_weights) == min(RIDGES, key=left_out_error)


def test_a_single_source_has_the_default_ridge():
    assert choose_ridge([source(20)], [1.0]) == DEFAULT_RIDGE


def test_low_rank_keeps_the_leading_part_and_the_trace():
    covariance = source(80).covariance
    factor, rest = low_rank(covariance, 4)
    assert factor.shape == (SIZE, 4)
    values, vectors = np.linalg.eigh(covariance)
    leading = (vectors[:, -4:] * values[-4:]) @ vectors[:, -4:].T
    np.testing.assert_allclose(factor @ factor.T, leading, atol=1e-6)  # in single precision
    assert np.trace(factor @ factor.T) + SIZE * rest == pytest.approx(np.trace(covariance))


def test_full_rank_is_exact_and_more_is_not_sent():
    covariance = source(80).covariance
    factor, rest = low_rank(covariance, 10 * SIZE)
    assert factor.shape == (SIZE, SIZE)
    np.testing.assert_allclose(factor @ factor.T + rest * np.eye(SIZE), covariance, atol=1e-6)


def test_covariance_is_that_between_classes_and_that_within_them():
    features, labels = labelled(50)
    sums = sums_of_source([(features, labels)], labels, CLASSES)
    rows, classes, weights = features.numpy(), labels.numpy(), np.bincount(labels)[labels] ** -0.5
    within = np.zeros((SIZE, SIZE))
    for label in range(CLASSES):
        members = classes == label
        share = weights[members].sum() / weights.sum()
        within += share * np.cov(rows[members].T, aweights=weights[members], ddof=0)
    statistics = sums.centred()
    between = between_classes(statistics.class_covariance, sums.shares.numpy())
    np.testing.assert_allclose(statistics.covariance - between @ between.T, within, atol=1e-12)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), ranks=st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_reduced_statistics_have_the_same_map_as_the_whole_matrices(seed, ranks):
    random, weights = np.random.RandomState(seed), np.random.RandomState(seed).uniform(0.1, 3, len(ranks))
    sources = []
    for rank in ranks:
        classes = random.randn(SIZE, CLASSES)
        sources.append(
            FactoredStatistics(classes, np.hstack([classes, random.randn(SIZE, rank)]), random.uniform(0, 2))
        )
    reduced, basis = reduce_factored(sources)
    whole = [SourceStatistics.of_source(b, f @ f.T + r * np.eye(SIZE)) for b, f, r in sources]
    maps = [total_of([a * part for a, part in zip(weights, parts, strict=True)]) for parts in (reduced, whole)]
    np.testing.assert_allclose(basis @ maps[0].class_map(0.3), maps[1].class_map(0.3), atol=1e-8)
    errors = [parts[0].squared_error(total.class_map(0.3)) for parts, total in zip((reduced, whole), maps, strict=True)]
    assert errors[0] == pytest.approx(errors[1])


def test_weights_are_inverse_to_distances_and_bounded():
    direction = unit_rows(1).numpy()[0]
    np.testing.assert_allclose(source_weights(np.outer(direction, [0.1, 0.2, 0.4])), np.array([4, 2, 1]) * 3 / 7)
    near, far = source_weights(np.outer(direction, [0.0, 1.0]))
    assert near / far == pytest.approx(MAX_WEIGHT_RATIO)
    assert source_weights(np.zeros((SIZE, 2))) == [1.0, 1.0]


def test_a_source_with_one_sample_has_a_map():
    assert np.isfinite(statistics_of(unit_rows(1), torch.tensor([1])).class_map(1.0)).all()


def test_a_matrix_that_rounding_made_indefinite_is_solved_too():
    statistics = SourceStatistics(1, np.eye(3), np.diag([1.0, 1.0, -1e-4]), 2 / 3)
    np.testing.assert_allclose(statistics.class_map(1e-6), np.diag([1, 1, -1e4]), rtol=1e-2)
