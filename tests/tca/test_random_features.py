import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.tca.random_features import (
    KERNELS,
    RandomFourierFeatures,
    draw_frequencies,
    kernel_matrix,
    median_sigma,
    shared_frequencies,
)


def exact(kernel, x, y, sigma):
    """Evaluate the definition of the kernel for one pair in plain Python."""
    difference = [(a - b) / sigma for a, b in zip(x, y, strict=True)]
    if kernel == "gaussian":
        return math.exp(-sum(d * d for d in difference) / 2)
    if kernel == "laplace":
        return math.exp(-sum(abs(d) for d in difference))
    return math.prod(1 / (1 + d * d) for d in difference)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_matrix_is_the_definition(kernel):
    rng = np.random.RandomState(0)
    x, y = rng.randn(7, 3), rng.randn(5, 3)
    expected = [[exact(kernel, a, b, 1.7) for b in y] for a in x]
    actual = kernel_matrix(torch.from_numpy(x), torch.from_numpy(y), 1.7, kernel)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_do_not_depend_on_the_origin(kernel):
    x = torch.from_numpy(np.random.RandomState(0).randn(20, 3))
    far = x + 1e8
    near = far - 1e8  # with the rounding of `far`
    torch.testing.assert_close(kernel_matrix(far, far, 1.0, kernel), kernel_matrix(near, near, 1.0, kernel))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("num_features", [100, 1000, 20000])
def test_features_approach_the_exact_kernel_within_hoeffding(kernel, num_features):
    x = torch.from_numpy(np.random.RandomState(1).randn(30, 4))
    features = RandomFourierFeatures(4, num_features, 2.0, kernel, seed=3, dtype=torch.float64)(x)
    error = (features @ features.T - kernel_matrix(x, x, 2.0, kernel)).abs().max()
    # An entry is a mean of N cosines: P(error > e) <= 2 exp(-N e² / 2). For 30² entries it fails once in a million.
    assert error <= math.sqrt(2 * math.log(2 * 30**2 * 1e6) / num_features)


@pytest.mark.parametrize("kernel", KERNELS)
def test_error_decreases_with_the_square_root_of_num_features(kernel):
    x = torch.from_numpy(np.random.RandomState(1).randn(40, 4))
    kernel_values = kernel_matrix(x, x, 2.0, kernel)
    sizes, errors = [50, 200, 800, 3200, 12800], []
    for size in sizes:
        squares = []
        for seed in range(5):
            features = RandomFourierFeatures(4, size, 2.0, kernel, seed, dtype=torch.float64)(x)
            squares.append((features @ features.T - kernel_values).square().mean())
        errors.append(math.sqrt(sum(squares) / len(squares)))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.08)


@settings(deadline=None, max_examples=40)
@given(
    columns=st.integers(1, 20),
    num_features=st.integers(1, 50),
    sigma=st.floats(0.05, 50),
    kernel=st.sampled_from(sorted(KERNELS)),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_sample_has_norm_one(columns, num_features, sigma, kernel, seed):
    x = torch.from_numpy(np.random.RandomState(0).randn(5, columns))
    features = RandomFourierFeatures(columns, num_features, sigma, kernel, seed, dtype=torch.float64)(x)
    assert features.shape == (5, 2 * num_features)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(5, dtype=torch.float64))


@pytest.mark.parametrize(
    ("kernel", "fingerprint", "first"),
    [
        ("gaussian", "5f8d5261969f4ccd", 0.3311427686741551),
        ("laplace", "eec6ba43b68d7dbb", -2.3949983174917158),
        ("cauchy", "762da600dadc5a71", -0.19260611651622625),
    ],
)
def test_frequencies_have_fixed_bits(kernel, fingerprint, first):
    assert draw_frequencies(50, 7, 1.5, kernel, seed=42)[0, 0] == first
    assert RandomFourierFeatures(7, 50, 1.5, kernel, seed=42).fingerprint == fingerprint


def test_fingerprint_depends_on_everything_but_precision():
    base = RandomFourierFeatures(7, 50, 1.5, "gaussian", 42)
    assert base.fingerprint == RandomFourierFeatures(7, 50, 1.5, dtype=torch.float64, seed=42).fingerprint
    others = [
        RandomFourierFeatures(8, 50, 1.5, "gaussian", 42),
        RandomFourierFeatures(7, 51, 1.5, "gaussian", 42),
        RandomFourierFeatures(7, 50, 1.6, "gaussian", 42),
        RandomFourierFeatures(7, 50, 1.5, "laplace", 42),
        RandomFourierFeatures(7, 50, 1.5, "gaussian", 43),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 6


def test_drawing_does_not_change_global_random_states():
    np.random.seed(0)
    torch.manual_seed(0)
    numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()
    RandomFourierFeatures(7, 50)
    assert (np.random.get_state()[1] == numpy_before).all()
    assert torch.equal(torch.get_rng_state(), torch_before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_module_can_move_to_any_dtype(dtype):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    reference = RandomFourierFeatures(3, 10, dtype=torch.float64)(x)
    features = RandomFourierFeatures(3, 10, dtype=torch.float64).to(dtype)(x.to(dtype))
    assert features.dtype == dtype
    torch.testing.assert_close(features.double(), reference, rtol=0, atol=20 * torch.finfo(dtype).eps)


def test_frequencies_are_a_saved_buffer_without_training():
    module = RandomFourierFeatures(3, 10, seed=1)
    assert list(module.state_dict()) == ["frequencies"]
    assert not list(module.parameters())
    other = RandomFourierFeatures(3, 10, seed=2)
    other.load_state_dict(module.state_dict())
    assert other.fingerprint == module.fingerprint


def test_gradients_of_the_input_are_correct():
    module = RandomFourierFeatures(3, 10, dtype=torch.float64)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, (x,))


def test_write_equals_forward():
    module, x = RandomFourierFeatures(3, 10), torch.randn(4, 3)
    out = torch.empty(4, 20)
    assert module.write(x, out) is out
    torch.testing.assert_close(out, module(x))


@pytest.mark.parametrize(("kernel", "norm"), [("gaussian", 2), ("laplace", 1), ("cauchy", 2)])
def test_median_sigma_is_the_median_distance(kernel, norm):
    x = np.random.RandomState(0).randn(60, 4)
    distances = [np.linalg.norm(a - b, norm) for i, a in enumerate(x) for b in x[:i]]
    assert median_sigma(torch.from_numpy(x), kernel) == pytest.approx(np.median(distances), rel=0.01)


def test_median_sigma_of_many_rows_is_a_close_and_repeatable_estimate():
    x = torch.from_numpy(np.random.RandomState(0).randn(20000, 4))
    estimate = median_sigma(x)
    assert estimate == median_sigma(x)
    assert estimate == pytest.approx(median_sigma(x[:500]), rel=0.1)


def test_median_sigma_ignores_equal_rows():
    x = torch.zeros(20, 2, dtype=torch.float64)
    x[0] = torch.tensor([3.0, 4.0])
    assert median_sigma(x) == 5.0
    with pytest.raises(ValueError, match="all rows are equal"):
        median_sigma(torch.ones(20, 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma": 0.0}, "sigma must be a positive number"),
        ({"sigma": -1.0}, "sigma must be a positive number"),
        ({"sigma": float("nan")}, "sigma must be a positive number"),
        ({"sigma": float("inf")}, "sigma must be a positive number"),
        ({"sigma": 1e-320}, "sigma=1e-320 is too small: the frequencies overflow"),
        ({"kernel": "rbf"}, "kernel must be one of gaussian, laplace, cauchy; got 'rbf'"),
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"seed": None}, "seed must be an integer from 0"),
        ({"num_features": 0}, "num_features must be a positive integer; got 0"),
        ({"in_features": 2.5}, "in_features must be a positive integer; got 2.5"),
    ],
)
def test_errors_name_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        RandomFourierFeatures(**{"in_features": 3, "num_features": 10, **arguments})


def test_frequencies_that_are_shared_are_not_changed_by_a_checkpoint():
    omega = shared_frequencies(5, 3, 1.0)
    first, second = (RandomFourierFeatures(3, 5, 1.0, frequencies=shared_frequencies(5, 3, 1.0)) for _ in range(2))
    assert first.frequencies is omega
    assert torch.equal(omega, RandomFourierFeatures(3, 5, 1.0).frequencies)
    version = omega._version
    first.load_state_dict({"frequencies": omega.clone()})
    assert first.frequencies is omega
    second.load_state_dict({"frequencies": omega + 1})
    assert torch.equal(second.frequencies, omega + 1)
    assert omega._version == version  # no step of another client sees a change
