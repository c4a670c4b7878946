"""Additive statistics of one domain's random features, and what they say about the number of features."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import ceil, log, sqrt
from operator import add

import torch
from torch import Tensor

from fedrf.tca.eigen import leading_eigenpairs
from fedrf.tca.precision import in_double

GRAM_BLOCKS = 8


@dataclass(frozen=True)
class DomainStatistics:
    """All that RF-TCA needs of one domain; the size does not depend on n, and statistics of parts add up.

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
        """Return the statistics of rows of random features."""
        return cls(len(features), in_double(features.sum(0)), gram_matrix(features))

    @classmethod
    def of_pieces(cls, pieces: Iterable[Tensor]) -> DomainStatistics:
        """Return the statistics of rows that come in pieces; at most two Gram matrices are in memory."""
        return reduce(add, map(cls.of, pieces))

    @classmethod
    def empty(cls, size: int) -> DomainStatistics:
        """Return the statistics of no samples."""
        zeros = torch.zeros(1, dtype=torch.float64)
        return cls(0, zeros.expand(size), zeros.expand(size, size))

    def __add__(self, other: DomainStatistics) -> DomainStatistics:
        if self.total.shape != other.total.shape:
            raise ValueError(
                f"cannot add statistics of {len(self.total)} and of {len(other.total)} features: "
                "num_features must be the same"
            )
        if not self.count:
            return other
        # Sums are in double precision, whatever the precision of the parts.
        gram = in_double(self.gram) + in_double(other.gram)
        return DomainStatistics(self.count + other.count, self.total + other.total, gram)

    @property
    def mean(self) -> Tensor:
        """Σℓ, the mean embedding of the domain."""
        return self.total / self.count

    @property
    def nbytes(self) -> int:
        """Size of the tensors in bytes, as in a message."""
        return self.total.nbytes + self.gram.nbytes


def gram_matrix(features: Tensor) -> Tensor:
    """Return FᵀF for features F, block by block; computing only the lower blocks saves almost half of the work."""
    size = features.shape[1]
    gram = features.new_empty(size, size)
    step = ceil(size / GRAM_BLOCKS)
    for start in range(0, size, step):
        rows = slice(start, min(start + step, size))
        torch.mm(features[:, rows].T, features[:, : rows.stop], out=gram[rows, : rows.stop])
        gram[:start, rows] = gram[rows, :start].T
    return gram


def intrinsic_dimension(statistics: DomainStatistics) -> float:
    """Return dim(K) = tr K / |K|₂ of the kernel matrix, estimated from the features: K ≈ ΣᵀΣ with unit diagonal."""
    largest = leading_eigenpairs(statistics.gram, 1)[0]
    dimension = float(statistics.gram.trace() / largest[0])
    if dimension > len(statistics.gram) / 4:
        warnings.warn(
            f"dim(K) = {dimension:.0f}, estimated from {len(statistics.gram)} features, may be too small: "
            "increase num_features, fit again and repeat the estimate",
            stacklevel=3,
        )
    return dimension


def suggest_num_features(statistics: DomainStatistics, error: float = 0.1) -> int:
    """Return an N for which E|ΣᵀΣ − K|₂ ≤ error · |K|₂, from dim(K) log n (paper, theorem 2).

    With the constants of the matrix Bernstein inequality, the relative error is at most s + s²/3 for
    s² = 2 dim(K) log(2n) / N. The bound is conservative.
    """
    if not 0 < error < 1:
        raise ValueError(f"error must be between 0 and 1; got {error!r}")
    root = 1.5 * (sqrt(1 + 4 * error / 3) - 1)
    return ceil(2 * intrinsic_dimension(statistics) * log(2 * statistics.count) / root**2)
