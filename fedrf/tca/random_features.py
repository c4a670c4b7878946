r"""Random Fourier features and the kernels that they approximate (paper, definition 1).

For a shift-invariant kernel k with k(0) = 1 and frequencies ω drawn from its Fourier transform,
k(x − y) = E[cos(ωᵀ(x − y))]. With N frequencies in the rows of Ω, the map

    Σ(x) = N^(−1/2) · [cos(Ωx), sin(Ωx)]  ∈ R^(2N)

therefore has ⟨Σ(x), Σ(y)⟩ → k(x − y), and |Σ(x)| = 1 exactly. Samples are rows here, columns in the paper.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn

from fedrf.tca.precision import in_double

MEDIAN_SAMPLE_SIZE = 500

_FREQUENCIES: WeakValueDictionary[tuple[int, int, float, str, int], Tensor] = WeakValueDictionary()
_DRAWING = Lock()


@dataclass(frozen=True)
class Kernel:
    """A shift-invariant kernel of unit width: its frequency distribution, exact value and norm."""

    formula: str
    draw: Callable[[np.random.RandomState, tuple[int, int]], np.ndarray]
    exact: Callable[[Tensor, Tensor], Tensor]
    norm: int


def _gaussian(x: Tensor, y: Tensor) -> Tensor:
    squared = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T
    return squared.clamp_(min=0).mul_(-0.5).exp_()


def _laplace(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y, p=1).neg_().exp_()


def _cauchy(x: Tensor, y: Tensor) -> Tensor:
    product = x.new_ones(len(x), len(y))
    for a, b in zip(x.T, y.T, strict=True):
        product *= 1 + (a[:, None] - b).square()
    return product.reciprocal_()


# The Laplace kernel has Cauchy-distributed frequencies, and the Cauchy kernel Laplace-distributed ones.
KERNELS = {
    "gaussian": Kernel("exp(-|x-y|² / 2σ²)", lambda rng, shape: rng.standard_normal(shape), _gaussian, 2),
    "laplace": Kernel("exp(-|x-y|₁ / σ)", lambda rng, shape: rng.standard_cauchy(shape), _laplace, 1),
    "cauchy": Kernel("∏ 1 / (1 + (xᵢ-yᵢ)²/σ²)", lambda rng, shape: rng.laplace(size=shape), _cauchy, 2),
}


def get_kernel(name: str) -> Kernel:
    """Return the kernel with this name, or raise a ValueError that lists the valid names."""
    try:
        return KERNELS[name]
    except (KeyError, TypeError):
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}; got {name!r}") from None


def check_sigma(sigma: float | str) -> float:
    """Return σ as a float, or raise a ValueError if it is not a positive finite number."""
    if isinstance(sigma, int | float | np.number) and isfinite(sigma) and sigma > 0:
        return float(sigma)
    raise ValueError(f"sigma must be a positive number or 'median'; got {sigma!r}")


def check_count(name: str, value: int) -> int:
    """Return a positive Python or NumPy integer as an int, or raise a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}")
    return int(value)


def kernel_matrix(x: Tensor, y: Tensor, sigma: float, kernel: str = "gaussian") -> Tensor:
    """Evaluate the exact kernel between the rows of `x` and the rows of `y`."""
    # Centring avoids cancellation in differences of squares far from the origin.
    width, origin = check_sigma(sigma), y.mean(0)
    return get_kernel(kernel).exact((x - origin) / width, (y - origin) / width)


def median_row_indices(count: int, seed: int = 0) -> np.ndarray:
    """Return the sorted indices of the rows that `median_sigma` uses: a seeded sample, or all rows if there are few."""
    return np.sort(np.random.RandomState(seed).permutation(count)[:MEDIAN_SAMPLE_SIZE])


def median_sigma(x: Tensor, kernel: str = "gaussian", seed: int = 0) -> float:
    """Return the median distance between rows of `x`, in the norm of the kernel, over a seeded subsample.

    Distances between equal rows are ignored, since they carry no information about the width.
    """
    sample = in_double(x[torch.from_numpy(median_row_indices(len(x), seed))])
    distances = torch.nn.functional.pdist(sample, p=float(get_kernel(kernel).norm))
    positive = distances[distances > 0]
    if positive.numel() == 0:
        raise ValueError("sigma='median' needs two different rows, and all rows are equal; set sigma to a number")
    return float(positive.median())


def draw_frequencies(
    num_features: int, in_features: int, sigma: float, kernel: str = "gaussian", seed: int = 0
) -> np.ndarray:
    """Draw Ω (N × p, float64); the result depends on the arguments alone.

    NumPy's legacy generator is frozen: its stream is the same in all versions of NumPy.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer from 0 to 2**32 - 1; got {seed!r}")
    rng = np.random.RandomState(seed)
    return get_kernel(kernel).draw(rng, (num_features, in_features)) / check_sigma(sigma)


def shared_frequencies(
    num_features: int, in_features: int, sigma: float, kernel: str = "gaussian", seed: int = 0
) -> Tensor:
    """Return Ω in single precision; in a process, the same tensor as long as somebody uses it. It must not be changed.

    The arguments are those of `draw_frequencies`.
    """
    key = (num_features, in_features, sigma, kernel, seed)
    with _DRAWING:
        omega = _FREQUENCIES.get(key)
        if omega is None:
            omega = _FREQUENCIES[key] = torch.from_numpy(draw_frequencies(*key)).float()
        return omega


class RandomFourierFeatures(nn.Module):
    """The map Σ from R^p to R^(2N): N cosines, followed by N sines, of the same random projections.

    Parameters
    ----------
    in_features
        p, the number of columns of the input.
    num_features
        N, the number of frequencies; the output has 2N columns.
    sigma
        σ, the width of the kernel.
    kernel
        ``gaussian``, ``laplace`` or ``cauchy``; see `KERNELS` for the formulas.
    seed
        Seed of Ω. All clients use the same seed, so that Ω is never sent.
    frequencies
        Ω, as `shared_frequencies` returns it for these arguments; default a copy of its own.

    Attributes
    ----------
    frequencies
        Ω, a buffer: it moves with the module, is saved with it and is not trained.
    """

    frequencies: Tensor

    def __init__(
        self,
        in_features: int,
        num_features: int,
        sigma: float = 1.0,
        kernel: str = "gaussian",
        seed: int = 0,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        frequencies: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.in_features = check_count("in_features", in_features)
        self.num_features = check_count("num_features", num_features)
        self.sigma, self.kernel, self.seed = check_sigma(sigma), kernel, seed
        if frequencies is None:
            omega = torch.from_numpy(draw_frequencies(num_features, in_features, sigma, kernel, seed))
            frequencies = omega.to(device, dtype or torch.get_default_dtype())
        self.register_buffer("frequencies", frequencies)
        if not self.frequencies.isfinite().all():
            raise ValueError(f"sigma={sigma!r} is too small: the frequencies overflow")

    @property
    def out_features(self) -> int:
        """2N, the number of columns of the output."""
        return 2 * self.num_features

    @property
    def fingerprint(self) -> str:
        """Hash of the frequencies, 16 hex digits; clients with equal fingerprints have comparable features.

        It is computed in single precision, so that a float32 and a float64 client get the same value.
        """
        values = self.frequencies.detach().to("cpu", torch.float32).numpy()
        digest = hashlib.sha256(f"{values.shape}".encode() + values.astype("<f4").tobytes())
        return digest.hexdigest()[:16]

    def forward(self, x: Tensor) -> Tensor:
        """Map rows of `x` to random features."""
        angles = nn.functional.linear(x, self.frequencies)
        return torch.cat([angles.cos(), angles.sin()], dim=-1) / sqrt(self.num_features)

    @torch.no_grad()
    def write(self, x: Tensor, out: Tensor) -> Tensor:
        """Compute `forward` without gradients into `out`: allocating memory would cost more than the sines."""
        cosines, sines = out.split(self.num_features, dim=-1)
        torch.mm(x, self.frequencies.T, out=cosines)
        torch.sin(cosines, out=sines)
        cosines.cos_()
        return out.div_(sqrt(self.num_features))

    def _load_from_state_dict(self, *arguments: Any) -> None:
        shared = self.frequencies
        self.frequencies = shared.clone()  # not in place: others may use the same tensor
        super()._load_from_state_dict(*arguments)
        if torch.equal(self.frequencies, shared):
            self.frequencies = shared

    def extra_repr(self) -> str:
        """Return the arguments that determine Ω."""
        return (
            f"in_features={self.in_features}, num_features={self.num_features}, sigma={self.sigma:g}, "
            f"kernel={self.kernel!r}, seed={self.seed}"
        )
