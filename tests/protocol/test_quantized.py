"""Matrices with few bits for each number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrf.protocol.quantized import Quantized


@given(seed=st.integers(0, 1000), exponent=st.integers(-30, 30), dtype=st.sampled_from(["int8", "int16"]))
def test_each_number_is_off_by_at_most_half_a_step_of_its_column(seed, exponent, dtype):
    matrix = np.random.RandomState(seed).randn(20, 4) * 10.0 ** (exponent + np.arange(4))
    steps = np.abs(matrix).max(0) / np.iinfo(dtype).max
    restored = Quantized.of(matrix, dtype).restored()
    assert (np.abs(restored - matrix) <= 0.5001 * steps + 1e-6 * np.abs(matrix)).all()


def test_zeros_and_no_columns():
    np.testing.assert_array_equal(Quantized.of(np.zeros((3, 2))).restored(), np.zeros((3, 2)))
    assert Quantized.of(np.zeros((3, 0))).restored().shape == (3, 0)


@pytest.mark.parametrize(("dtype", "width"), [("int8", 1), ("int16", 2)])
def test_size(dtype, width):
    assert Quantized.of(np.ones((5, 3)), dtype).nbytes == 15 * width + 3 * 4
