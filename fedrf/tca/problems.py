r"""Transfer component analysis in closed form: TCA, R-TCA and RF-TCA (paper, sections II-B and III).

All three minimise |Wᵀv|² + γ|W|² subject to WᵀSW = I, where v is the discrepancy between the two domain means
and S the total scatter. They differ only in the features from which v and S are computed:

============ ==================================== ====================================
method       features of a sample                 problem solved here
============ ==================================== ====================================
RF-TCA       its 2N random features               2N × 2N, `ScatterProblem`
R-TCA        its image in the kernel's own space  n × n, `GramProblem` with Q = K
vanilla TCA  its row of the kernel matrix K       n × n, `GramProblem` with Q = K²
============ ==================================== ====================================

The textbook solution, the leading eigenvectors of (γI + vvᵀ)⁻¹S, needs a matrix that is not symmetric. But
(γI + vvᵀ)^(−1/2) is, up to a factor, the matrix P that multiplies the direction of v by (γ/(γ+|v|²))^(1/2) and keeps
all orthogonal directions. Therefore W = P·U, where U has the leading eigenvectors of the symmetric matrix PSP. Its
eigenvalues are those of the matrix in Algorithm 1. For γ → 0, P projects v away and the domain means coincide; for
γ → ∞, P = I and the components are principal components. γ changes one direction only, so that many values of γ cost
little more than one (`EigenSpace`).

**Scaling.** `Solution.aligner` is P·U with orthonormal U, so that WᵀSW = diag(eigenvalues): each column satisfies the
paper's constraint up to a factor, and a component is weighted by its variance, as in principal component analysis.
`Solution.whitened` divides by the square roots of the eigenvalues and satisfies WᵀSW = I exactly. This amplifies the
weakest components, which degrades nearest-neighbour and RBF classifiers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod, sqrt
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedrf.tca.eigen import EigenSpace, canonical_signs, noise_level
from fedrf.tca.statistics import DomainStatistics


class Solution(NamedTuple):
    """Components in the columns of `aligner` (W), and the eigenvalues of Algorithm 1's matrix in decreasing order."""

    aligner: Tensor
    eigenvalues: Tensor

    @property
    def whitened(self) -> Tensor:
        """The components scaled to WᵀSW = I; components without variance stay zero."""
        return self.aligner * torch.where(self.eigenvalues > 0, self.eigenvalues, inf).rsqrt()


class Problem(Protocol):
    """The interface of a problem for the estimators."""

    @property
    def num_samples(self) -> int:
        """The number of samples of both domains."""

    def solve(self, gamma: float, dim: int) -> Solution:
        """Return the `dim` leading components for one γ."""

    def informative_gamma_range(self, dim: int) -> tuple[float, float]:
        """Return the interval outside which γ has little effect on the solution."""


@dataclass(frozen=True)
class ScatterProblem:
    """The problem in feature space, from the statistics of the source and of the target.

    `dtype` is the precision of the eigenproblem; everything else is in double precision.
    """

    source: DomainStatistics
    target: DomainStatistics
    dtype: torch.dtype = torch.float64

    @cached_property
    def pooled(self) -> DomainStatistics:
        """Statistics of both domains together."""
        return self.source + self.target

    @property
    def num_samples(self) -> int:
        """n, the number of samples of both domains."""
        return self.pooled.count

    @cached_property
    def discrepancy(self) -> Tensor:
        """The difference v = Σℓ of the two domain means."""
        return self.source.mean - self.target.mean

    @property
    def squared_discrepancy(self) -> float:
        """|v|², or 0 if it is rounding error: v then has no meaningful direction."""
        squared = float(self.discrepancy.square().sum())
        return squared if squared > noise_level(self.dtype) ** 2 else 0.0

    @property
    def total_variance(self) -> float:
        """Trace of S/n."""
        return float(self.pooled.gram.trace() / self.pooled.count - self.pooled.mean.square().sum())

    @cached_property
    def _space(self) -> EigenSpace:
        """S, in a basis whose first vector is v; shared by all γ."""
        mean = self.pooled.total / sqrt(self.pooled.count)
        scatter = torch.addr(self.pooled.gram.double(), mean, mean, alpha=-1)
        return EigenSpace(scatter.to(self.dtype), self.discrepancy)

    def solve(self, gamma: float, dim: int) -> Solution:
        """Return the `dim` leading components for one γ."""
        squared = self.squared_discrepancy
        # In the basis of `_space`, P = diag(shrinkage, 1, 1, …).
        shrinkage = sqrt(gamma / (gamma + squared)) if squared > 0 and gamma < inf else 1.0

        def shrink(matrix: Tensor) -> None:
            matrix[:, 0] *= shrinkage
            matrix[0, 0] *= shrinkage

        values, vectors, basis = self._space.leading(dim, shrink)
        vectors[0] *= shrinkage
        return significant_solution(basis.T @ vectors, values, self.pooled.gram)

    def informative_gamma_range(self, dim: int) -> tuple[float, float]:
        """Return the interval outside which γ has little effect on the solution."""
        v, pooled = self.discrepancy, self.pooled
        spread = v @ pooled.gram @ v - pooled.count * (pooled.mean @ v) ** 2
        values = self._space.leading(dim)[0]
        significant = values[_is_significant(values, pooled.gram)]
        return _informative_range(self.squared_discrepancy, float(spread), significant)


@dataclass(frozen=True)
class GramProblem:
    """The problem in sample space, from the Gram matrix Q = ΦᵀΦ of the samples' features (n × n, float64).

    The components are Φβ for coefficients β of the samples. If `features` (Φ) is None, as in the kernel's own space,
    where Φ cannot be computed, the solution is β itself.
    """

    gram: Tensor
    is_source: Tensor
    features: Tensor | None = None

    @classmethod
    def vanilla(cls, kernel_matrix: Tensor, is_source: Tensor) -> GramProblem:
        """Return the problem of TCA: the features of a sample are its row of the kernel matrix."""
        return cls(kernel_matrix @ kernel_matrix, is_source, kernel_matrix)

    @classmethod
    def regularised(cls, kernel_matrix: Tensor, is_source: Tensor) -> GramProblem:
        """Return the problem of R-TCA: the features of a sample are its image in the kernel's own space."""
        return cls(kernel_matrix, is_source)

    @property
    def num_samples(self) -> int:
        """n, the number of samples of both domains."""
        return len(self.gram)

    @cached_property
    def domain_weights(self) -> Tensor:
        """ℓ: 1/n_S for each source sample, −1/n_T for each target sample."""
        source = self.is_source.double()
        return source / source.sum() - (1 - source) / (1 - source).sum()

    @cached_property
    def _image(self) -> Tensor:
        """Qℓ: the inner products of the discrepancy v with the features of each sample."""
        return self.gram @ self.domain_weights

    @cached_property
    def _centred_image(self) -> Tensor:
        """HQℓ, the only direction of HQH that γ changes."""
        return self._image - self._image.mean()

    @cached_property
    def _space(self) -> EigenSpace:
        """HQH, in a basis whose first vector is HQℓ; shared by all γ."""
        means = self.gram.mean(0)
        half, ones = means - means.mean() / 2, torch.ones_like(means)
        centred = torch.addmm(self.gram, torch.stack([ones, half], dim=1), torch.stack([half, ones]), alpha=-1)
        return EigenSpace(centred, self._centred_image)

    @property
    def squared_discrepancy(self) -> float:
        """|v|² = ℓᵀQℓ, or 0 if it is rounding error."""
        squared = float(self.domain_weights @ self._image)
        return squared if squared > noise_level(self.gram.dtype) * float(self.gram.diagonal().mean()) else 0.0

    def solve(self, gamma: float, dim: int) -> Solution:
        """Return the `dim` leading components for one γ."""
        squared = self.squared_discrepancy
        penalty = 1 / (gamma + squared) if squared > 0 else 0.0
        removed = penalty * self._centred_image.square().sum()

        def shrink(matrix: Tensor) -> None:
            matrix[0, 0] -= removed

        values, coordinates, basis = self._space.leading(dim, shrink)
        vectors = basis.T @ coordinates
        components = (vectors - penalty * torch.outer(self.domain_weights, self._image @ vectors)) / values.abs().sqrt()
        if self.features is not None:
            components = self.features @ components
        return significant_solution(components, values, self.gram)

    def informative_gamma_range(self, dim: int) -> tuple[float, float]:
        """Return the interval outside which γ has little effect on the solution."""
        spread = self._centred_image.square().sum()
        values = self._space.leading(dim)[0]
        significant = values[_is_significant(values, self.gram)]
        return _informative_range(self.squared_discrepancy, float(spread), significant)


def check_gamma(gamma: float | str) -> None:
    """Raise a ValueError if γ is neither a number, at least 0, nor ``"auto"``."""
    if gamma != "auto" and not (isinstance(gamma, int | float | np.number) and gamma >= 0):
        raise ValueError(f"gamma must be a number, at least 0, or 'auto'; got {gamma!r}")


def resolve_gamma(gamma: float | str, problem: Problem, dim: int) -> float:
    """Return γ as a number; ``"auto"`` is the geometric mean of the ends of the informative range."""
    check_gamma(gamma)
    return sqrt(prod(problem.informative_gamma_range(dim))) if gamma == "auto" else float(gamma)


def significant_solution(components: Tensor, values: Tensor, gram: Tensor) -> Solution:
    """Return the components with canonical signs; those whose eigenvalue is rounding error become zero."""
    significant = _is_significant(values, gram)
    rank = int(significant.sum())
    if rank == 0:
        raise ValueError(
            "no component has more variance than rounding error: the samples may be equal, sigma far too large for "
            "them, or gamma too small for so few samples"
        )
    if rank < len(values):
        warnings.warn(
            f"only {rank} of the {len(values)} components carry any variance; the others are zero", stacklevel=3
        )
    kept_components, kept_values = components.where(significant, 0.0), values.where(significant, 0.0)
    return Solution(canonical_signs(kept_components).double(), kept_values.double())


def _is_significant(values: Tensor, gram: Tensor) -> Tensor:
    """Return which eigenvalues are larger than rounding error."""
    return values > noise_level(values.dtype) * gram.trace()


def _informative_range(squared: float, spread: float, eigenvalues: Tensor) -> tuple[float, float]:
    """Return the γ for which the rank-one term and the rest have similar weight (paper, appendix B, remark 2).

    Along v, with |v|² = `squared` and vᵀSv = `spread`, the variance is spread/|v|². All of it is kept for γ → ∞ and all
    of it is removed for γ → 0. For γ above ten times |v|², less than a tenth of it is removed. At the lower bound, what
    remains is a tenth of the weakest component kept, so that v cannot appear among the components again. The range
    covers most of the effect of γ, but not all of it: where eigenvalues nearly coincide, a tenth can still rotate
    components.

    The paper's figure measures γ in units of |ℓ|² = n/(n_S n_T); divide by that to compare.
    """
    weakest = float(eigenvalues[-1]) * squared / spread if spread > 0 and len(eigenvalues) else 1.0
    return 0.1 * squared * min(1.0, weakest), 10.0 * squared
