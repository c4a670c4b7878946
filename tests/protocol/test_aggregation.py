"""Every rule: order does not matter, equal inputs pass through, one liar moves the robust ones only so far."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedrf.protocol.aggregation import RULES, flush, mean, mix, staleness_weight

NUMBERS = st.floats(-100, 100, width=32)
STACKS = st.integers(1, 7).flatmap(lambda count: arrays(np.float32, (count, 4), elements=NUMBERS))
ROBUST = ["median", "trimmed", "krum", "geometric-median"]


@pytest.mark.parametrize("name", RULES)
@given(stack=STACKS, seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_order_does_not_matter(name, stack, seed):
    rng = np.random.RandomState(seed)
    weights = rng.uniform(0.5, 2, len(stack))
    order = rng.permutation(len(stack))
    together = RULES[name](list(stack), weights)
    shuffled = RULES[name](list(stack[order]), weights[order])
    np.testing.assert_allclose(together, shuffled, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", RULES)
@given(values=arrays(np.float32, (2, 3), elements=NUMBERS), count=st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_equal_inputs_pass_through_to_the_last_bit(name, values, count):
    weights = np.random.RandomState(0).uniform(0.5, 2, count)
    np.testing.assert_array_equal(RULES[name]([values] * count, weights), values)


@pytest.mark.parametrize("name", ROBUST)
@given(seed=st.integers(0, 999), far=st.floats(1e2, 1e6), liar=st.integers(0, 4))
@settings(max_examples=50, deadline=None)
def test_one_liar_among_five_has_bounded_influence(name, seed, far, liar):
    honest = np.random.RandomState(seed).uniform(-1, 1, (5, 3)).astype(np.float32)
    honest[liar] = far
    result = RULES[name](list(honest), np.ones(5))
    assert np.abs(result).max() <= 2


def test_one_liar_moves_the_mean_as_far_as_he_likes():
    stack = [np.zeros(3, np.float32)] * 4 + [np.full(3, 1e6, np.float32)]
    assert RULES["mean"](stack, np.ones(5)).min() > 1e5


def test_weighted_mean_by_hand():
    clients = [np.array([0.0, 2.0], np.float32), np.array([4.0, 2.0], np.float32)]
    np.testing.assert_allclose(mean(clients, np.array([3.0, 1.0])), [1.0, 2.0])
    np.testing.assert_allclose(mean(clients, np.ones(2)), [2.0, 2.0])


def test_trimmed_mean_by_hand():
    clients = [np.array([value], np.float32) for value in (1, 2, 3, 4, 1000)]
    assert RULES["trimmed"](clients, np.ones(5)) == pytest.approx([3.0])


def test_krum_returns_one_of_the_crowd():
    clients = [np.array([value], np.float32) for value in (1.0, 1.1, 0.9, 1.05, 50.0)]
    assert RULES["krum"](clients, np.ones(5)) in (1.0, np.float32(1.05))


def test_geometric_median_of_three_on_a_line_is_the_middle_one():
    clients = [np.array([value, 0], np.float32) for value in (0.0, 1.0, 10.0)]
    np.testing.assert_allclose(RULES["geometric-median"](clients, np.ones(3)), [1.0, 0.0], atol=1e-4)


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
