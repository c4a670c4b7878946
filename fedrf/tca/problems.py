r"""Transfer component analysis in closed form: TCA, R-TCA and RF-TCA (paper, sections II-B and III).

All three minimise |Wᵀv|² + γ|W|² subject to WᵀSW = I, where v is the discrepancy between the two domain means
and S the total scatter, and differ only in the features in which both are taken:

============ ==================================== ====================================
method       features of a sample                 problem solved here
============ ==================================== ====================================
RF-TCA       its 2N random features               2N × 2N, `ScatterProblem`
R-TCA        its image in the kernel's own space  n × n, `GramProblem` with Q = K
vanilla TCA  its row of the kernel matrix K       n × n, `GramProblem` with Q = K²
============ ==================================== ====================================

The textbook solution, the leading eigenvectors of (γI + vvᵀ)⁻¹S, is not symmetric. But (γI + vvᵀ)^(−1/2) is, up
to a factor, the matrix P that multiplies the direction of v by (γ/(γ+|v|²))^(1/2) and leaves all others alone, so that
W = P·U with U the leading eigenvectors of the symmetric matrix PSP. Its eigenvalues are those of the matrix in
Algorithm 1. For γ → 0, P projects v away and the domain means coincide; for γ → ∞, P = I and the components are
principal components. γ only ever touches that one direction, so many γ cost little more than one (`EigenSpace`).

**Scaling.** `Solution.aligner` is P·U with orthonormal U, so that WᵀSW = diag(eigenvalues): the columns satisfy the
paper's constraint up to a factor each, and a component weighs as much as it varies, as in principal component
analysis. `Solution.whitened` divides by the square roots and has WᵀSW = I to the letter; that blows the weakest
components up, which nearest-neighbour and RBF classifiers do not like.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, log, sqrt
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedrf.tca.eigen import EigenSpace, canonical_signs, leading_eigenpairs

GRAM_BLOCKS = 8


class Solution(NamedTuple):
    """Components in the columns of `aligner` (W), with the eigenvalues of Algorithm 1's matrix, decreasing."""

    aligner: Tensor
    eigenvalues: Tensor

    @property
    def whitened(self) -> Tensor:
        """The components scaled to WᵀSW = I; those without variance stay zero."""
        return self.aligner * torch.where(self.eigenvalues > 0, self.eigenvalues, inf).rsqrt()


class Problem(Protocol):
    """What the estimators need of a problem."""

    def solve(self, gamma: float, dim: int) -> Solution:
        """Return the `dim` leading components for one γ."""

    def informative_gamma_range(self, dim: int) -> tuple[float, float]:
        """Return the interval outside which γ hardly changes the solution."""


@dataclass(frozen=True)
class DomainStatistics:
    """All that RF-TCA needs of one domain, of a size that does not depend on n; statistics of parts add up.

    Attributes
    ----------
    count
        n, the number of samples.
    total
        Σ1, the sum of their random features (2N).
    gram
        ΣΣᵀ, the sum of their outer products (2N × 2N).
    """

    count: int
    total: Tensor
    gram: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, features: Tensor) -> DomainStatistics:
        """Summarise rows of random features."""
        return cls(len(features), features.sum(0).double(), _gram(features))

    @classmethod
    def empty(cls, size: int) -> DomainStatistics:
        """Return the statistics of no samples."""
        zeros = torch.zeros(1, dtype=torch.float64)
        return cls(0, zeros.expand(size), zeros.expand(size, size))

    def __add__(self, other: DomainStatistics) -> DomainStatistics:
        if self.total.shape != other.total.shape:
            raise ValueError(
                f"statistics of {len(self.total)} and of {len(other.total)} features do not add: "
                "num_features must be the same"
            )
        if not self.count:
            return other
        # Sums of parts are kept in double precision, whatever the precision of the parts.
        gram = self.gram.double() + other.gram
        return DomainStatistics(self.count + other.count, self.total + other.total, gram)

    @property
    def mean(self) -> Tensor:
        """Σℓ, the mean embedding of the domain."""
        return self.total / self.count

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors, as a message would carry them."""
        return self.total.nbytes + self.gram.nbytes


def _gram(features: Tensor) -> Tensor:
    """FᵀF by blocks of columns: with only the lower blocks computed, little more than half the work."""
    size = features.shape[1]
    gram = features.new_empty(size, size)
    step = ceil(size / GRAM_BLOCKS)
    for start in range(0, size, step):
        rows = slice(start, min(start + step, size))
        torch.mm(features[:, rows].T, features[:, : rows.stop], out=gram[rows, : rows.stop])
        gram[:start, rows] = gram[rows, :start].T
    return gram


@dataclass(frozen=True)
class ScatterProblem:
    """The problem in the space of the features, from the statistics of the source and of the target.

    `dtype` is the precision of the eigenproblem; everything else is done in double precision.
    """

    source: DomainStatistics
    target: DomainStatistics
    dtype: torch.dtype = torch.float64

    @cached_property
    def pooled(self) -> DomainStatistics:
        """Statistics of both domains together."""
        return self.source + self.target

    @cached_property
    def discrepancy(self) -> Tensor:
        """The difference v = Σℓ of the two domain means."""
        return self.source.mean - self.target.mean

    @property
    def squared_discrepancy(self) -> float:
        """|v|², where it stands out from rounding error; else 0, since a direction of noise is none."""
        squared = float(self.discrepancy.square().sum())
        return squared if squared > _noise(self.dtype) ** 2 else 0.0

    @property
    def total_variance(self) -> float:
        """Trace of S/n."""
        return float(self.pooled.gram.trace() / self.pooled.count - self.pooled.mean.square().sum())

    @cached_property
    def _space(self) -> EigenSpace:
        """S, in a basis that begins with v and that all γ share."""
        mean = self.pooled.total / sqrt(self.pooled.count)
        scatter = torch.addr(self.pooled.gram.double(), mean, mean, alpha=-1)
        return EigenSpace(scatter.to(self.dtype), self.discrepancy)

    def solve(self, gamma: float, dim: int) -> Solution:
        """Return the `dim` leading components for one γ."""
        squared = self.squared_discrepancy
        # In that basis P = diag(kept, 1, 1, …).
        kept = sqrt(gamma / (gamma + squared)) if squared > 0 and gamma < inf else 1.0

        def shrink(matrix: Tensor) -> None:
            matrix[:, 0] *= kept
            matrix[0, 0] *= kept

        values, vectors, basis = self._space.leading(dim, shrink)
        vectors[0] *= kept
        return significant(basis.T @ vectors, values, self.pooled.gram)

    def informative_gamma_range(self, dim: int) -> tuple[float, float]:
        """Return the interval outside which γ hardly changes the solution."""
        v, pooled = self.discrepancy, self.pooled
        spread = v @ pooled.gram @ v - pooled.count * (pooled.mean @ v) ** 2
        values = self._space.leading(dim)[0]
        return _informative_range(self.squared_discrepancy, float(spread), values[_solid(values, pooled.gram)])


@dataclass(frozen=True)
class GramProblem:
    """The problem in the space of the samples, from the Gram matrix Q = ΦᵀΦ of their features (n × n, float64).

    With β the coefficients of the samples' features, the components are Φβ. Where Φ is out of reach, as in the
    kernel's own space, `features` is None and the solution is β itself.
    """

    gram: Tensor
    is_source: Tensor
    features: Tensor | None = None

    @classmethod
    def vanilla(cls, kernel_matrix: Tensor, is_source: Tensor) -> GramProblem:
        """TCA: the features of a sample are its row of the kernel matrix."""
        return cls(kernel_matrix @ kernel_matrix, is_source, kernel_matrix)

    @classmethod
    def regularised(cls, kernel_matrix: Tensor, is_source: Tensor) -> GramProblem:
        """R-TCA: the features of a sample are its image in the kernel's own space."""
        return cls(kernel_matrix, is_source)

    @cached_property
    def labels(self) -> Tensor:
        """ℓ of the paper: 1/n_S for each source sample, −1/n_T for each target sample."""
        source = self.is_source.double()
        return source / source.sum() - (1 - source) / (1 - source).sum()

    @cached_property
    def _image(self) -> Tensor:
        """Qℓ: the discrepancy of the domain means, times each sample's features."""
        return self.gram @ self.labels

    @cached_property
    def _centred_image(self) -> Tensor:
        """HQℓ, the one direction of HQH that γ changes."""
        return self._image - self._image.mean()

    @cached_property
    def _space(self) -> EigenSpace:
        """HQH, in a basis that begins with HQℓ and that all γ share."""
        means = self.gram.mean(0)
        half, ones = means - means.mean() / 2, torch.ones_like(means)
        centred = torch.addmm(self.gram, torch.stack([ones, half], dim=1), torch.stack([half, ones]), alpha=-1)
        return EigenSpace(centred, self._centred_image)

    @property
    def squared_discrepancy(self) -> float:
        """|v|² = ℓᵀQℓ, where it stands out from rounding error; else 0."""
        squared = float(self.labels @ self._image)
        return squared if squared > _noise(self.gram.dtype) * float(self.gram.diagonal().mean()) else 0.0

    def solve(self, gamma: float, dim: int) -> Solution:
        """Return the `dim` leading components for one γ."""
        squared = self.squared_discrepancy
        pull = 1 / (gamma + squared) if squared > 0 else 0.0
        removed = pull * self._centred_image.square().sum()

        def shrink(matrix: Tensor) -> None:
            matrix[0, 0] -= removed

        values, coordinates, basis = self._space.leading(dim, shrink)
        vectors = basis.T @ coordinates
        components = (vectors - pull * torch.outer(self.labels, self._image @ vectors)) / values.abs().sqrt()
        if self.features is not None:
            components = self.features @ components
        return significant(components, values, self.gram)

    def informative_gamma_range(self, dim: int) -> tuple[float, float]:
        """Return the interval outside which γ hardly changes the solution."""
        spread = self._centred_image.square().sum()
        values = self._space.leading(dim)[0]
        return _informative_range(self.squared_discrepancy, float(spread), values[_solid(values, self.gram)])


def intrinsic_dimension(statistics: DomainStatistics) -> float:
    """dim(K) = tr K / |K|₂ of the kernel matrix, read off the features: K ≈ ΣᵀΣ, and each sample has norm 1."""
    largest = leading_eigenpairs(statistics.gram, 1)[0]
    dimension = float(statistics.gram.trace() / largest[0])
    if dimension > len(statistics.gram) / 4:
        warnings.warn(
            f"dim(K) = {dimension:.0f}, as seen through {len(statistics.gram)} features, may well be larger: "
            "fit with more features and ask again",
            stacklevel=3,
        )
    return dimension


def suggest_num_features(statistics: DomainStatistics, error: float = 0.1) -> int:
    """Return an N for which E|ΣᵀΣ − K|₂ ≤ error · |K|₂, from dim(K) log n (paper, theorem 2).

    With the constants of the matrix Bernstein inequality, the relative error is at most s + s²/3 for
    s² = 2 dim(K) log(2n) / N. The bound is on the safe side.
    """
    if not 0 < error < 1:
        raise ValueError(f"error must be between 0 and 1; got {error!r}")
    root = 1.5 * (sqrt(1 + 4 * error / 3) - 1)
    return ceil(2 * intrinsic_dimension(statistics) * log(2 * statistics.count) / root**2)


def _noise(dtype: torch.dtype) -> float:
    """Return a relative size below which a number is taken for rounding error."""
    return 32 * torch.finfo(dtype).eps


def _solid(values: Tensor, gram: Tensor) -> Tensor:
    """Tell which eigenvalues stand out from rounding error."""
    return values > _noise(values.dtype) * gram.trace()


def significant(components: Tensor, values: Tensor, gram: Tensor) -> Solution:
    """Zero the components whose eigenvalue does not stand out from rounding error, and fix the signs."""
    solid = _solid(values, gram)
    rank = int(solid.sum())
    if rank == 0:
        raise ValueError(
            "no component stands out from rounding error: the samples may be equal, sigma far too large for them, "
            "or gamma too small for so few samples"
        )
    if rank < len(values):
        warnings.warn(
            f"only {rank} of the {len(values)} components carry any variance; the others are zero", stacklevel=3
        )
    return Solution(canonical_signs(components.where(solid, 0.0)).double(), values.where(solid, 0.0).double())


def _informative_range(squared: float, spread: float, eigenvalues: Tensor) -> tuple[float, float]:
    """Bound the γ for which the rank-one term is on even ground with the rest (paper, appendix B, remark 2).

    Along v, at |v|² = `squared` and with vᵀSv = `spread`, a variance of spread/|v|² is left as it is for γ → ∞ and
    taken away entirely for γ → 0. Above ten times |v|² less than a tenth of it is taken. At the lower end what is
    left is a tenth of the weakest component that is kept, so that it cannot come back among the components. That
    covers most of what γ can change, not all: where eigenvalues nearly coincide, a tenth can still turn components.

    The paper's figure counts γ in units of |ℓ|² = n/(n_S n_T); divide by that to compare.
    """
    weakest = float(eigenvalues[-1]) * squared / spread if spread > 0 and len(eigenvalues) else 1.0
    return 0.1 * squared * min(1.0, weakest), 10.0 * squared
