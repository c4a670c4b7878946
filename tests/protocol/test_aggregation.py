"""Every rule: independent of order, equal inputs pass through, and robust rules bound the influence of one client."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedrf.protocol.aggregation import BUILT_IN, accept, flush, mean, mix, staleness_weight

NUMBERS = st.floats(-100, 100, width=32)
STACKS = st.integers(1, 7).flatmap(lambda count: arrays(np.float32, (count, 4), elements=NUMBERS))
ROBUST = ["median", "trimmed", "krum", "geometric-median"]


@pytest.mark.parametrize("name", BUILT_IN)
@given(stack=STACKS, seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_order_does_not_matter(name, stack, seed):
    rng = np.random.RandomState(seed)
    weights = rng.uniform(0.5, 2, len(stack))
    order = rng.permutation(len(stack))
    together = BUILT_IN[name].combine(list(stack), weights)
    shuffled = BUILT_IN[name].combine(list(stack[order]), weights[order])
    np.testing.assert_allclose(together, shuffled, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", BUILT_IN)
@given(values=arrays(np.float32, (2, 3), elements=NUMBERS), count=st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_equal_inputs_pass_through_to_the_last_bit(name, values, count):
    weights = np.random.RandomState(0).uniform(0.5, 2, count)
    np.testing.assert_array_equal(BUILT_IN[name].combine([values] * count, weights), values)


@pytest.mark.parametrize("name", ROBUST)
@given(seed=st.integers(0, 999), far=st.floats(1e2, 1e6), faulty=st.integers(0, 4))
@settings(max_examples=50, deadline=None)
def test_one_faulty_among_five_has_bounded_influence(name, seed, far, faulty):
    honest = np.random.RandomState(seed).uniform(-1, 1, (5, 3)).astype(np.float32)
    honest[faulty] = far
    result = BUILT_IN[name].combine(list(honest), np.ones(5))
    assert np.abs(result).max() <= 2


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
