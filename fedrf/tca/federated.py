r"""Federated RF-TCA: the closed-form aligner W_RF for clients that keep their samples.

There are any number of source clients and one target client, all with the same random features. Two algorithms compute
the solution of `fedrf.tca.problems.ScatterProblem` for the pooled samples. The size of their messages does not depend
on the number of samples:

========================= ======================== ==================== ======
algorithm                 each client sends        each client receives rounds
========================= ======================== ==================== ======
`aligner_from_statistics` 2N + 2N × 2N             nothing              1
`SubspaceIteration`       2N, 2N × (m+1) per step  2N × (m+1) per step  1 + k
========================= ======================== ==================== ======

The second sends less if its k steps have k(m+1) < 2N. It also keeps the second moments of each client private: only
their product with a basis is sent.

**Few steps are enough.** The coordinator keeps all bases and products. After k steps it knows the total scatter S on
the span of {Q, SQ, …, S^(k−1)Q} and takes the best solution in this span (block Lanczos). Power iteration would use
S^(k−1)Q alone.

**Messages do not depend on γ.** P differs from I only along the discrepancy v of the domain means, which is known
before the first step. Q contains v, so that the span is the same for S and for PSP. Therefore one iteration gives the
solutions for all γ, including ``"auto"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf

import torch
from torch import Tensor

from fedrf.tca.eigen import canonical_signs
from fedrf.tca.precision import in_double
from fedrf.tca.problems import ScatterProblem, Solution, resolve_gamma
from fedrf.tca.random_features import check_count
from fedrf.tca.statistics import DomainStatistics


def aligner_from_statistics(
    sources: Sequence[DomainStatistics],
    target: DomainStatistics,
    gamma: float | str,
    dim: int,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Return the aligner (2N × dim) from the statistics that each client sends once.

    Parameters
    ----------
    sources, target
        Statistics of the random features of each client.
    gamma
        γ, or ``"auto"`` for the geometric mean of the ends of the informative range.
    dim
        m, the number of components.
    dtype
        Precision of the clients' features; values below its rounding error count as zero.
    """
    return _solve(pooled_problem(sources, target, dtype), gamma, check_count("dim", dim)).aligner


def pooled_problem(
    sources: Sequence[DomainStatistics], target: DomainStatistics, dtype: torch.dtype = torch.float64
) -> ScatterProblem:
    """Return the problem of the pooled samples from the statistics that each client sends once."""
    source = sum(sources, DomainStatistics.empty(len(target.total)))
    _check_counts(source.count, target.count)
    return ScatterProblem(source, target, dtype)


@torch.no_grad()
def scatter_product(features: Tensor | Iterable[Tensor], basis: Tensor) -> Tensor:
    """Return ΣΣᵀQ for a client's rows of random features and the columns Q of `basis`.

    `features` is one tensor or an iterable of chunks. Chunks bound the memory; their products are added in double
    precision.
    """
    product = in_double(torch.zeros_like(basis))
    for rows in [features] if isinstance(features, Tensor) else features:
        product += (rows.T @ (rows @ basis.to(rows))).to(product)
    return product.to(basis.dtype)


class SubspaceIteration:
    """The coordinator's side of the iterative algorithm.

    While `residual` is too large, send `basis` to all clients and call `update` with the sum of their
    `scatter_product`.

    Parameters
    ----------
    sources, target
        Number of samples and mean embedding (2N) of each client.
    dim
        m, the number of components.
    seed
        Seed of the random columns of the first basis.
    dtype
        Precision of the clients' features and of the basis.

    Attributes
    ----------
    basis
        The next basis to send: 2N × (m+1), orthonormal, with one column for v. It has fewer columns, and finally none,
        when all 2N dimensions have been used.
    """

    basis: Tensor

    def __init__(
        self,
        sources: Sequence[tuple[int, Tensor]],
        target: tuple[int, Tensor],
        dim: int,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.dim, self.dtype = check_count("dim", dim), dtype
        self._counts = sum(count for count, _ in sources), target[0]
        _check_counts(*self._counts)
        # The mean of an empty client is NaN.
        totals = torch.stack([count * mean.double() for count, mean in sources if count])
        self._totals = torch.stack([totals.sum(0), target[0] * target[1].double()])
        size = len(target[1])
        # All bases so far, their products, and the part of S·(last basis) that is orthogonal to all bases.
        self._bases = self._products = self._remainder = self._totals.new_empty(size, 0)
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(size, dim + 1, generator=generator, dtype=torch.float64)
        start[:, 0] = self._totals[0] / self._counts[0] - self._totals[1] / self._counts[1]
        self._set_basis(start)

    def update(self, product: Tensor) -> None:
        """Add ΣΣᵀQ of the current basis Q, summed over all clients, and compute the next basis."""
        if product.shape != self.basis.shape:
            raise ValueError(f"product must be {[*self.basis.shape]}, like the basis; got {[*product.shape]}")
        basis, product, total = self.basis.double(), product.double(), self._totals.sum(0)
        self._bases = torch.cat([self._bases, basis], dim=1)
        self._products = torch.cat([self._products, product], dim=1)
        image = product - torch.outer(total / sum(self._counts), total @ basis)
        self._remainder = image - self._bases @ (self._bases.T @ image)
        self._set_basis(self._remainder)
        self.__dict__.pop("_problem", None)

    def solution(self, gamma: float | str) -> Solution:
        """Return the best components so far for one γ, scaled like those of `ScatterProblem`."""
        coordinates, eigenvalues = _solve(self._problem, gamma, self.dim)
        return Solution(canonical_signs(self._bases @ coordinates), eigenvalues)

    def informative_gamma_range(self) -> tuple[float, float]:
        """Return the interval outside which γ has little effect on the solution, as estimated from the steps so far."""
        return self._problem.informative_gamma_range(self.dim)

    def residual(self, gamma: float | str) -> float:
        """Return |PSPU − UΛ| divided by the smallest eigenvalue in Λ; infinite before the first step.

        The part of S outside the span has little variance. The residual is therefore close to the sine of the largest
        angle to the components of the pooled samples. In the worst case the sine is λₘ/(λₘ − λₘ₊₁) times larger.
        """
        if not self._bases.shape[1]:
            return inf
        coordinates, eigenvalues = _solve(self._problem, gamma, self.dim)
        # S maps every basis but the last one into the span.
        last = coordinates[len(coordinates) - self._remainder.shape[1] :]
        return float(torch.linalg.matrix_norm(self._remainder @ last, 2) / eigenvalues[eigenvalues > 0][-1])

    def _set_basis(self, columns: Tensor) -> None:
        """Make the columns orthonormal, and orthogonal to all bases so far."""
        # Householder QR fills in arbitrary directions where the columns are rank-deficient.
        factor: Tensor = torch.linalg.qr(torch.cat([self._bases, columns], dim=1)).Q
        self.basis = factor[:, self._bases.shape[1] :].to(self.dtype)

    @cached_property
    def _problem(self) -> ScatterProblem:
        """The pooled problem within the span of all bases, which contains v."""
        gram = self._bases.T @ self._products
        totals = self._totals @ self._bases
        # Only the sum of the two Gram matrices matters.
        return ScatterProblem(
            DomainStatistics(self._counts[0], totals[0], (gram + gram.T) / 2),
            DomainStatistics(self._counts[1], totals[1], torch.zeros_like(gram)),
            self.dtype,
        )


def _check_counts(source: int, target: int) -> None:
    if not source or not target:
        raise ValueError(f"both domains need samples; got {source} of the source and {target} of the target")


def _solve(problem: ScatterProblem, gamma: float | str, dim: int) -> Solution:
    return problem.solve(resolve_gamma(gamma, problem, dim), dim)
