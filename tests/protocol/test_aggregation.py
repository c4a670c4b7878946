"""Every rule: independent of order, equal inputs pass through, and robust rules bound the influence of one client."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedrf.protocol.aggregation import BUILT_IN, accept, combine, flush, mean, mix, outliers, staleness_weight

NUMBERS = st.floats(-100, 100, width=32)
STACKS = st.integers(1, 7).flatmap(lambda count: arrays(np.float32, (count, 4), elements=NUMBERS))
ROBUST = ["median", "trimmed", "krum", "geometric-median", "consistent"]


@pytest.mark.parametrize("name", BUILT_IN)
@given(stack=STACKS, seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_order_does_not_matter(name, stack, seed):
    rng = np.random.RandomState(seed)
    weights = rng.uniform(0.5, 2, len(stack))
    order = rng.permutation(len(stack))
    together = combine(BUILT_IN[name], list(stack), weights)
    shuffled = combine(BUILT_IN[name], list(stack[order]), weights[order])
    np.testing.assert_allclose(together, shuffled, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", BUILT_IN)
@given(values=arrays(np.float32, (2, 3), elements=NUMBERS), count=st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_equal_inputs_pass_through_to_the_last_bit(name, values, count):
    weights = np.random.RandomState(0).uniform(0.5, 2, count)
    np.testing.assert_array_equal(combine(BUILT_IN[name], [values] * count, weights), values)


@pytest.mark.parametrize("name", ROBUST)
@given(seed=st.integers(0, 999), far=st.floats(1e2, 1e6), faulty=st.integers(0, 4))
@settings(max_examples=50, deadline=None)
def test_one_faulty_among_five_has_bounded_influence(name, seed, far, faulty):
    honest = np.random.RandomState(seed).uniform(-1, 1, (5, 3)).astype(np.float32)
    honest[faulty] = far
    result = combine(BUILT_IN[name], list(honest), np.ones(5))
    assert np.abs(result).max() <= 2


def left_out(stack):
    """Return the positions that `consistent` leaves out, and its result."""
    suspected = []
    result = combine(BUILT_IN["consistent"], list(stack), np.ones(len(stack)), suspect=suspected.append)
    return suspected, result


def test_consistent_leaves_out_who_is_further_than_zero_by_hand():
    """The honest clients are within 0.2 of each other, and zero is 1 away; one client is 2 away, one 0.9."""
    stack = np.array([[1.0], [1.1], [0.9], [-1.0]], np.float32)
    suspected, result = left_out(stack)
    assert suspected == [3]
    assert result == pytest.approx([1.0])
    stack[3] = 0.1
    assert left_out(stack)[0] == []


def test_consistent_needs_a_majority():
    opposite = np.array([[1.0], [-1.0]], np.float32)
    assert outliers(list(opposite)) == []
    assert outliers(list(np.repeat(opposite, 2, axis=0))) == []


@given(seed=st.integers(0, 999), hostile=st.integers(1, 3), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_hostile_minority_moves_the_consistent_mean_by_a_bounded_distance(seed, hostile, data):
    """Whatever the minority sends, even the same numbers: the bound has honest clients only, and all of them stay."""
    random = np.random.RandomState(seed)
    centre = random.randn(6)
    honest = centre + random.uniform(0, 0.3) * random.uniform(-1, 1, (hostile + random.randint(1, 4), 6))
    sent = data.draw(arrays(np.float64, (hostile, 6), elements=st.floats(-1e30, 1e30)))
    near = data.draw(st.sampled_from([0.0, 1.0]))
    sent = near * centre + np.where(near, 3.0, 1.0) * (sent / np.maximum(1, np.abs(sent).max()) if near else sent)
    order = random.permutation(len(honest) + hostile)
    stack = np.vstack([honest, sent]).astype(np.float32)[order]
    widest = max(np.linalg.norm(a - b) for a in honest for b in honest)
    norms = np.linalg.norm(honest, axis=1)
    suspected, result = left_out(stack)
    assert np.linalg.norm(result - honest.mean(0)) <= 1.001 * (max(1.5 * widest, norms.max()) + widest) + 1e-4
    if widest < 0.99 * norms.min():
        assert all(order[position] >= len(honest) for position in suspected)


@given(stack=STACKS, seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_consistent_is_the_mean_of_who_remains_to_the_last_bit(stack, seed):
    weights, suspected = np.random.RandomState(seed).uniform(0.5, 2, len(stack)), []
    result = combine(BUILT_IN["consistent"], list(stack), weights, suspect=suspected.append)
    kept = [position for position in range(len(stack)) if position not in suspected]
    assert 2 * len(kept) >= len(stack)
    np.testing.assert_array_equal(result, mean([stack[position] for position in kept], weights[kept]))


def test_distances_are_those_between_all_values_of_large_arrays():
    """More values than a block has; the difference is in the last ones."""
    stack = np.ones((3, 70_000), np.float32)
    stack[2, -30_000:] = -2
    assert outliers(list(stack)) == [2]


def test_one_faulty_moves_the_mean_without_bound():
    stack = [np.zeros(3, np.float32)] * 4 + [np.full(3, 1e6, np.float32)]
    assert BUILT_IN["mean"].combine(stack, np.ones(5)).min() > 1e5


def test_weighted_mean_by_hand():
    clients = [np.array([0.0, 2.0], np.float32), np.array([4.0, 2.0], np.float32)]
    np.testing.assert_allclose(mean(clients, np.array([3.0, 1.0])), [1.0, 2.0])
    np.testing.assert_allclose(mean(clients, np.ones(2)), [2.0, 2.0])


def test_trimmed_mean_by_hand():
    clients = [np.array([value], np.float32) for value in (1, 2, 3, 4, 1000)]
    assert BUILT_IN["trimmed"].combine(clients, np.ones(5)) == pytest.approx([3.0])


def test_krum_returns_one_of_the_crowd():
    clients = [np.array([value], np.float32) for value in (1.0, 1.1, 0.9, 1.05, 50.0)]
    assert BUILT_IN["krum"].combine(clients, np.ones(5)) in (1.0, np.float32(1.05))


def test_geometric_median_of_three_on_a_line_is_the_middle_one():
    clients = [np.array([value, 0], np.float32) for value in (0.0, 1.0, 10.0)]
    np.testing.assert_allclose(BUILT_IN["geometric-median"].combine(clients, np.ones(3)), [1.0, 0.0], atol=1e-4)


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0, 2))
def test_staleness_weight_falls_with_age_from_one(early, late, exponent):
    early, late = sorted((early, late))
    assert staleness_weight(0, exponent) == 1
    assert 0 < staleness_weight(late, exponent) <= staleness_weight(early, exponent)


def test_staleness_weight_and_mix_by_hand():
    assert staleness_weight(3, 0.5) == 0.5
    moved = mix(np.array([1.0], np.float32), np.array([3.0], np.float32), 0.25)
    assert moved == pytest.approx([1.5])
    assert moved.dtype == np.float32


def test_a_buffer_is_a_weighted_mean():
    buffer = [(np.array([1.0], np.float32), 1.0), (np.array([4.0], np.float32), 0.5)]
    assert flush(buffer) == pytest.approx([2.0])


def test_a_function_of_parameters_and_weights_is_a_rule():
    rule = accept(lambda clients, weights: clients[0])
    assert rule.combine([1, 2], None) == 1
    assert (rule.weights, rule.asynchronous) == ("equal", None)
    with pytest.raises(ValueError, match="neither a Rule nor a function"):
        accept("mean")
