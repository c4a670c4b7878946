"""MMD between samples: against loops over all pairs, and properties for any two sets."""

from math import exp

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedrf.methods.sample_mmd import gaussian_mmd, linear_mmd, multi_kernel_mmd

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
DISTANCES = pytest.mark.parametrize(
    ("distance", "factors"), [(multi_kernel_mmd, WIDTHS), (gaussian_mmd, (1.0,))], ids=["five kernels", "one kernel"]
)


@st.composite
def two_sets(draw):
    columns = draw(st.integers(1, 4))
    numbers = st.floats(-3, 3, width=32)
    return [
        torch.from_numpy(draw(arrays(np.float32, (draw(st.integers(1, 6)), columns), elements=numbers))).double()
        for _ in range(2)
    ]


def squared(row, other):
    return sum((a - b) ** 2 for a, b in zip(row, other, strict=True))


def naive(rows, others, factors):
    """Return the MMD for the mean of Gaussian kernels, one pair at a time."""
    rows, others = rows.tolist(), others.tolist()
    both = rows + others
    pairs = [squared(a, b) for i, a in enumerate(both) for j, b in enumerate(both) if i != j]
    width = sum(pairs) / len(pairs)

    def kernel(a, b):
        return sum(exp(-squared(a, b) / (factor * width)) for factor in factors) / len(factors) if width else 1.0

    def mean(first, second):
        return sum(kernel(a, b) for a in first for b in second) / (len(first) * len(second))

    return mean(rows, rows) + mean(others, others) - 2 * mean(rows, others)


@DISTANCES
@settings(deadline=None, max_examples=50)
@given(sets=two_sets())
def test_it_equals_a_loop_over_all_pairs(distance, factors, sets):
    np.testing.assert_allclose(float(distance(*sets)), naive(*sets, factors), atol=1e-9)


@DISTANCES
@settings(deadline=None, max_examples=50)
@given(sets=two_sets(), factor=st.floats(0.01, 100))
def test_it_is_bounded_symmetric_and_scale_invariant(distance, factors, sets, factor):
    first, second = sets
    value = float(distance(first, second))
    assert -1e-9 <= value <= 2 + 1e-9
    np.testing.assert_allclose(float(distance(second, first)), value, atol=1e-9)
    np.testing.assert_allclose(float(distance(factor * first, factor * second)), value, atol=1e-7)
    np.testing.assert_allclose(float(distance(first, first.flip(0))), 0, atol=1e-9)


@DISTANCES
def test_distant_sets_have_a_larger_mmd(distance, factors):
    torch.manual_seed(0)
    first, second = torch.randn(20, 3), torch.randn(20, 3)
    distances = [float(distance(first, second + shift)) for shift in (0.0, 1.0, 5.0)]
    assert distances == sorted(distances)
    assert distances[0] < 0.1 < distances[2]


@DISTANCES
def test_the_gradient_treats_widths_as_constants_and_exists_for_equal_samples(distance, factors):
    torch.manual_seed(0)
    rows, others = torch.randn(4, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    rows[1] = rows[0]  # where the root of the squared distance has no derivative
    rows.requires_grad_()
    (gradient,) = torch.autograd.grad(distance(rows, others), rows)
    both = torch.cat([rows.detach(), others])
    width = torch.stack([(a - b).square().sum() for a in both for b in both]).sum() / (7 * 6)
    by_hand = torch.zeros_like(rows)
    for i, row in enumerate(rows.detach()):
        for j, other in enumerate(both):
            sign = 2 / 16 if j < 4 else -2 / 12
            for factor in factors:
                derivative = -2 * (row - other) / (factor * width) / len(factors)
                by_hand[i] += sign * derivative * (-(row - other).square().sum() / (factor * width)).exp()
    torch.testing.assert_close(gradient, by_hand)


def test_linear_mmd_by_hand():
    rows, others = torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 4.0]])
    assert float(linear_mmd(rows, others)) == 2.0**2 + 2.0**2


@settings(deadline=None, max_examples=50)
@given(two_sets())
def test_linear_mmd_is_the_mmd_of_inner_products(sets):
    first, second = sets
    pairs = (first @ first.T).mean() + (second @ second.T).mean() - 2 * (first @ second.T).mean()
    torch.testing.assert_close(linear_mmd(first, second), pairs, atol=1e-9, rtol=0)
