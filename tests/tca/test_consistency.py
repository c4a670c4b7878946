"""Sources that contradict the others: known permutations, exact bounds, and honest sources that all stay."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.tca.consistency import IMPOSSIBLE, NO_MAJORITY, agreements, bounded_weights, dissenters, suspects
from fedrf.tca.source_statistics import FactoredStatistics

SIZE, CLASSES = 30, 6
SHIFT = np.roll(np.arange(CLASSES), 1)


def domains(count, noise=0.3, seed=0):
    """Return the B of sources: the same directions of the classes with the noise of each domain."""
    random = np.random.RandomState(seed)
    directions = random.randn(SIZE, CLASSES)
    return [directions + noise * random.randn(SIZE, CLASSES) for _ in range(count)]


def best_matching(first, second):
    """Try all permutations."""
    products = first.T @ second
    return max(sum(products[row, column] for row, column in enumerate(order)) for order in permutations(range(CLASSES)))


@pytest.mark.parametrize("noise", [0.1, 2.0])
def test_agreement_is_the_share_of_the_best_of_all_matchings(noise):
    first, second = domains(2, noise)
    expected = (first * second).sum() / best_matching(first, second)
    np.testing.assert_allclose(agreements([first, second]), [[1, expected], [expected, 1]])
    assert agreements([first, -first])[0, 1] < 0
    assert agreements([np.eye(2), np.array([[-1.0, -1.0], [-1.0, -1.0]])])[0, 1] == -1


def test_only_classes_that_both_have_are_compared():
    first, second = domains(2)
    first[:, 0], second[:, 1] = 0, 0
    expected = agreements([first[:, 2:], second[:, 2:]])[0, 1]
    assert agreements([first, second])[0, 1] == pytest.approx(expected)
    first[:, :5] = 0
    assert np.isnan(agreements([first, second])[0, 1])


ATTACKS = {
    "sign": lambda matrix: -matrix,
    "labels": lambda matrix: matrix[:, SHIFT],
    "large": lambda matrix: -1e30 * matrix,
}


@pytest.mark.parametrize("attack", ATTACKS)
@given(count=st.integers(3, 9), seed=st.integers(0, 999), data=st.data())
@settings(max_examples=25, deadline=None)
def test_one_hostile_source_is_left_out_and_no_other(attack, count, seed, data):
    position, sources = data.draw(st.integers(0, count - 1)), domains(count, seed=seed)
    sources[position] = ATTACKS[attack](sources[position])
    assert dissenters(sources) == [position]


def test_noise_is_left_out_mostly_and_no_other_source_ever():
    found = []
    for seed in range(200):
        sources = domains(5, seed=seed)
        sources[2] = np.random.RandomState(1000 + seed).randn(SIZE, CLASSES)
        found.append(dissenters(sources))
    assert all(left_out in ([2], []) for left_out in found)
    assert found.count([2]) > 150


@pytest.mark.parametrize("attack", ["sign", "labels"])
def test_two_of_five_that_agree_with_each_other_are_left_out(attack):
    sources = domains(5)
    for position in (0, 3):
        sources[position] = ATTACKS[attack](sources[position])
    assert dissenters(sources) == [0, 3]


def test_nobody_is_left_out_of_two_or_if_nobody_has_a_majority():
    first, second, *_ = domains(4)
    assert dissenters([first, -second]) == []
    assert dissenters([first, second, -first, -second]) == []


def test_sources_with_other_classes_do_not_contradict():
    """Two sources for each pair of classes: if one exchanges its labels, one other sees it, which is too few."""
    sources = domains(6)
    for position, matrix in enumerate(sources):
        absent = [label for label in range(CLASSES) if label // 2 != position // 2]
        matrix[:, absent] = 0
    assert dissenters(sources) == []
    sources[0] = sources[0][:, [1, 0, 2, 3, 4, 5]]
    assert dissenters(sources) == []


def possible(class_covariance, length=0.8):
    """Return statistics with tr A + |Σℓ|² = 1, and Σℓ."""
    embedding = np.zeros(SIZE, np.float32)
    embedding[0] = length
    factor = 0.01 * class_covariance
    rest = (1 - float(embedding[0]) ** 2 - np.square(factor).sum()) / SIZE
    return FactoredStatistics(factor, factor, rest), embedding


def test_statistics_of_samples_are_possible_and_others_are_not():
    pairs = {name: possible(matrix) for name, matrix in zip("abcd", domains(4), strict=True)}
    statistics, embeddings = ({name: pair[part] for name, pair in pairs.items()} for part in (0, 1))
    assert suspects(statistics, embeddings) == {}
    assert suspects(statistics, embeddings | {"b": embeddings["b"] * 0.9}) == {"b": IMPOSSIBLE}
    scaled = statistics["c"]._replace(factor=10 * statistics["c"].factor)
    assert suspects(statistics | {"c": scaled}, embeddings) == {"c": IMPOSSIBLE}
    flipped = statistics["d"]._replace(class_covariance=-statistics["d"].class_covariance)
    assert suspects(statistics | {"c": scaled, "d": flipped}, embeddings) == {"c": IMPOSSIBLE, "d": NO_MAJORITY}


def test_statistics_that_are_impossible_are_left_out_of_two_sources_too():
    pairs = [possible(matrix) for matrix in domains(2)]
    statistics = {"a": pairs[0][0], "b": pairs[1][0]._replace(rest=1.0)}
    assert suspects(statistics, {"a": pairs[0][1], "b": pairs[1][1]}) == {"b": IMPOSSIBLE}


def test_weights_are_bounded_by_twice_the_median_by_hand():
    ones = [np.eye(2)] * 4
    assert bounded_weights([1.0, 1.5, 0.5, 9.0], ones) == [1.0, 1.5, 0.5, 2.5]
    assert bounded_weights([1.0, 1.9, 0.5], ones[:3]) == [1.0, 1.9, 0.5]
    assert bounded_weights([1.0, 9.0], ones[:2]) == [1.0, 9.0]
    assert bounded_weights([1.0] * 4, [*ones[:3], 8 * np.eye(2)]) == [1.0, 1.0, 1.0, 0.25]
    assert bounded_weights([1.0] * 3, [np.zeros((2, 2))] * 3) == [1.0] * 3
