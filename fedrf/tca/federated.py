r"""Federated RF-TCA: the closed-form aligner W_RF for clients that keep their samples, as a start for its training.

There are any number of source clients and one target client, all with the same random features. Two ways lead to the
solution of `fedrf.tca.problems.ScatterProblem` for the pooled samples; no message depends on the number of samples:

=================== ======================== ================== ======
form                up, from each client     down, to each      rounds
=================== ======================== ================== ======
`from_statistics`   2N + 2N × 2N             nothing            1
`SubspaceIteration` 2N, 2N × (m+1) a step    2N × (m+1) a step  1 + k
=================== ======================== ================== ======

The second sends less up while k steps have k(m+1) < 2N, and no client's second moments leave it, only their product
with a basis.

**Why few steps.** All that was ever sent and received stays useful: after k steps the coordinator knows the total
scatter S on the span of {Q, SQ, …, S^(k−1)Q} and takes the best solution in all of it (block Lanczos), where power
iteration has S^(k−1)Q alone.

**Why γ is not in the messages.** P differs from I only along the discrepancy v of the domain means, which are known
before the first step. With v in Q, that span is the same for S and for PSP. So one iteration serves all γ, and
``"auto"`` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf, prod, sqrt

import torch
from torch import Tensor

from fedrf.tca.eigen import canonical_signs
from fedrf.tca.problems import DomainStatistics, ScatterProblem, Solution
from fedrf.tca.random_features import check_count


def from_statistics(
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
        γ, or ``"auto"`` for the geometric middle of the informative range.
    dim
        m, the number of components.
    dtype
        Precision of the clients' features; what lies below its rounding error is taken for nothing.
    """
    return _solve(pooled_problem(sources, target, dtype), gamma, check_count("dim", dim)).aligner


def pooled_problem(
    sources: Sequence[DomainStatistics], target: DomainStatistics, dtype: torch.dtype = torch.float64
) -> ScatterProblem:
    """Return the problem of the pooled samples, from the statistics that each client sends once."""
    source = sum(sources, DomainStatistics.empty(len(target.total)))
    _check_counts(source.count, target.count)
    return ScatterProblem(source, target, dtype)


@torch.no_grad()
def scatter_product(features: Tensor | Iterable[Tensor], basis: Tensor) -> Tensor:
    """Return ΣΣᵀQ for a client's rows of random features, whole or in chunks, and the columns Q of `basis`.

    Chunks that are computed one after the other bound the memory; they are added up in double precision.
    """
    product = torch.zeros_like(basis, dtype=torch.float64)
    for rows in [features] if isinstance(features, Tensor) else features:
        product += (rows.T @ (rows @ basis.to(rows))).to(product)
    return product.to(basis.dtype)


class SubspaceIteration:
    """The coordinator's part of the distributed solution.

    While `residual` is too large, send `basis` to all clients and `update` with the sum of their `scatter_product`.

    Parameters
    ----------
    sources, target
        Number of samples and mean embedding (2N) of each client.
    dim
        m, the number of components.
    seed
        Of the random columns of the first basis.
    dtype
        Precision of the clients' features and of the basis.

    Attributes
    ----------
    basis
        What goes out next: 2N × (m+1), orthonormal, one column being for v. It has fewer columns, in the end none,
        when 2N dimensions are used up.
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
        # The mean of an empty client is not a number.
        totals = torch.stack([count * mean.double() for count, mean in sources if count])
        self._totals = torch.stack([totals.sum(0), target[0] * target[1].double()])
        size = len(target[1])
        self._known = self._products = self._leftover = self._totals.new_empty(size, 0)
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(size, dim + 1, generator=generator, dtype=torch.float64)
        start[:, 0] = self._totals[0] / self._counts[0] - self._totals[1] / self._counts[1]
        self._set_basis(start)

    def update(self, product: Tensor) -> None:
        """Take in ΣΣᵀQ for the current basis Q, summed over all clients, and move on to the next basis."""
        if product.shape != self.basis.shape:
            raise ValueError(f"product must be {[*self.basis.shape]}, like the basis; got {[*product.shape]}")
        basis, product, total = self.basis.double(), product.double(), self._totals.sum(0)
        self._known = torch.cat([self._known, basis], dim=1)
        self._products = torch.cat([self._products, product], dim=1)
        image = product - torch.outer(total / sum(self._counts), total @ basis)
        self._leftover = image - self._known @ (self._known.T @ image)
        self._set_basis(self._leftover)
        self.__dict__.pop("_problem", None)

    def solution(self, gamma: float | str) -> Solution:
        """Return the best components so far for one γ, scaled like those of `ScatterProblem`."""
        coordinates, eigenvalues = _solve(self._problem, gamma, self.dim)
        return Solution(canonical_signs(self._known @ coordinates), eigenvalues)

    def informative_gamma_range(self) -> tuple[float, float]:
        """Return the interval outside which γ hardly changes the solution, as far as S is known."""
        return self._problem.informative_gamma_range(self.dim)

    def residual(self, gamma: float | str) -> float:
        """Return |PSPU − UΛ| over the smallest eigenvalue in Λ; infinite before the first step.

        As the part that is missing has little variance, that is about the sine of the largest angle to the components
        of the pooled samples. At worst the sine is λₘ/(λₘ − λₘ₊₁) times larger.
        """
        if not self._known.shape[1]:
            return inf
        coordinates, eigenvalues = _solve(self._problem, gamma, self.dim)
        # S maps all known columns but the latest into the known space.
        latest = coordinates[len(coordinates) - self._leftover.shape[1] :]
        return float(torch.linalg.matrix_norm(self._leftover @ latest, 2) / eigenvalues[eigenvalues > 0][-1])

    def _set_basis(self, columns: Tensor) -> None:
        """Make the columns orthonormal, and orthogonal to what is known."""
        # Householder's QR makes up directions where the columns are deficient.
        factor: Tensor = torch.linalg.qr(torch.cat([self._known, columns], dim=1)).Q
        self.basis = factor[:, self._known.shape[1] :].to(self.dtype)

    @cached_property
    def _problem(self) -> ScatterProblem:
        """The pooled problem within the known space, which has all of v."""
        gram = self._known.T @ self._products
        totals = self._totals @ self._known
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
    if gamma == "auto":
        gamma = sqrt(prod(problem.informative_gamma_range(dim)))
    if not (isinstance(gamma, int | float) and gamma >= 0):
        raise ValueError(f"gamma must be a number, at least 0, or 'auto'; got {gamma!r}")
    return problem.solve(gamma, dim)
