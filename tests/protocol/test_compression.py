"""Codes of arrays: how far off they are, how long they are, and what is not one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrf.protocol.compression import CODECS, Difference, rounded, size_of

SHAPES = [(1,), (255,), (257,), (1000,), (60, 8), (8, 60), (301, 3)]


def numbers(shape, seed, exponent=0):
    return (np.random.RandomState(seed).randn(*shape) * 10.0**exponent).astype(np.float32)


def blocks(values, size=256):
    flat = values.reshape(-1)
    return [flat[start : start + size] for start in range(0, flat.size, size)]


@given(st.sampled_from(SHAPES), st.integers(0, 1000), st.integers(-8, 3), st.sampled_from([8, 4]))
def test_integers_are_off_by_at_most_half_a_step_of_their_block(shape, seed, exponent, bits):
    values = numbers(shape, seed, exponent)
    _, decoded = rounded(CODECS[f"int{bits}"], values)
    assert decoded.shape == shape
    assert decoded.dtype == np.float32
    for before, after in zip(blocks(values), blocks(decoded), strict=True):
        largest = np.abs(before).max()
        assert np.abs(after - before).max() <= 0.5001 * largest / (2 ** (bits - 1) - 1)


@given(st.sampled_from(SHAPES), st.integers(0, 1000), st.integers(-3, 3))
def test_half_precision_has_eleven_bits(shape, seed, exponent):
    values = numbers(shape, seed, exponent)
    _, decoded = rounded(CODECS["half"], values)
    assert (np.abs(decoded - values) <= 2.0**-11 * np.abs(values) + 2.0**-25).all()


def test_half_precision_has_a_largest_number():
    _, decoded = rounded(CODECS["half"], np.array([1e6, -1e6], np.float32))
    assert decoded.tolist() == [65504, -65504]


@given(st.sampled_from([(60, 40), (40, 60), (33, 33)]), st.integers(0, 1000))
def test_low_rank_is_the_best_approximation(shape, seed):
    """Eckart-Young: what is left out has the norm of the smaller singular values."""
    values, rank = numbers(shape, seed), round(0.1 * min(shape))
    _, decoded = rounded(CODECS["low-rank"], values)
    left_out = np.linalg.svd(values.astype(np.float64))[1][rank:]
    assert np.linalg.norm(decoded - values) == pytest.approx(np.linalg.norm(left_out), rel=1e-3)
    assert np.linalg.matrix_rank(decoded.astype(np.float64), tol=1e-2) == rank


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("shape", [(257,), (60, 40)])
def test_rounding_errors_that_are_fed_back_do_not_add_up(name, shape):
    """What has arrived after all steps is the sum of what was meant, but for the error of the last step."""
    codec, residual = CODECS[name], np.zeros(shape, np.float32)
    meant, arrived, without = (np.zeros(shape) for _ in range(3))
    for seed in range(50):
        step = 1 + 0.3 * numbers(shape, seed)
        _, change = rounded(codec, step + residual)
        residual = step + residual - change
        meant, arrived, without = meant + step, arrived + change, without + rounded(codec, step)[1]
    np.testing.assert_allclose(arrived + residual, meant, atol=1e-4)
    assert np.linalg.norm(arrived - meant) < 0.5 * np.linalg.norm(without - meant) or name == "half"


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("half", (60, 8), 2 * 480),
        ("int8", (60, 8), 480 + 4 * 2),
        ("int8", (256,), 256 + 4),
        ("int4", (60, 8), 240 + 4 * 2),
        ("int4", (257,), 129 + 4 * 2),
        ("low-rank", (60, 40), 2 * 4 * (60 + 40)),
        ("low-rank", (60, 8), 2 * 1 * (60 + 8)),
        ("low-rank", (257,), 257 + 4 * 2),
    ],
)
def test_size(name, shape, expected):
    code = CODECS[name].encode(numbers(shape, 0))
    assert size_of(code) == expected
    assert Difference(3, (code, code)).nbytes == 8 + 2 * expected


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("shape", [(257,), (60, 8)])
def test_nothing_stays_nothing(name, shape):
    _, decoded = rounded(CODECS[name], np.zeros(shape, np.float32))
    np.testing.assert_array_equal(decoded, np.zeros(shape))


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("shape", [(257,), (60, 8)])
def test_what_is_no_code_of_the_shape_is_refused(name, shape):
    codec, values = CODECS[name], numbers(shape, 0)
    code = codec.encode(values)
    longer = np.concatenate([code[0], code[0]])
    for wrong in ((), code[:-1], (*code, code[0]), (longer, *code[1:]), (code[0].astype(np.float64), *code[1:]), None):
        with pytest.raises(ValueError, match="a code has arrays"):
            codec.decode(wrong, shape)
