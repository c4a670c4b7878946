r"""Classifiers from additive statistics: one message of each source is enough, and no round of training is needed.

Source i has the covariance A_i of its random features (2N × 2N) and their covariance B_i with the indicators of the
classes (2N × classes), both with the source's own mean removed. They add up over sources, and the map from centred
random features to class scores is the solution of the ridge regression

    M = (Σ_i A_i + λ · a · I)⁻¹ Σ_i B_i,

where a is the mean of the diagonal of Σ_i A_i. To add a source is to add its statistics, and to remove it is to
subtract them.

The coordinator uses this module, so it does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating[Any]]

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # candidates for λ
DEFAULT_RIDGE = 1.0


@dataclass(frozen=True, eq=False)
class SourceStatistics:
    """Covariances, summed over sources.

    Attributes
    ----------
    num_sources
        Number of sources in the sum.
    class_covariance
        Σ_i B_i (2N × classes).
    covariance
        Σ_i A_i (2N × 2N); None if the sources did not send it.
    """

    num_sources: int
    class_covariance: Matrix
    covariance: Matrix | None = None

    def __add__(self, other: SourceStatistics) -> SourceStatistics:
        return self._combined(other, 1)

    def __sub__(self, other: SourceStatistics) -> SourceStatistics:
        return self._combined(other, -1)

    def _combined(self, other: SourceStatistics, sign: int) -> SourceStatistics:
        if self.class_covariance.shape != other.class_covariance.shape:
            raise ValueError(
                f"cannot add statistics of shapes {self.class_covariance.shape} and {other.class_covariance.shape}: "
                "numbers of features and classes must be the same"
            )
        covariance = None
        if self.covariance is not None and other.covariance is not None:
            covariance = self.covariance + sign * other.covariance
        return SourceStatistics(
            self.num_sources + sign * other.num_sources,
            self.class_covariance + sign * other.class_covariance,
            covariance,
        )

    def single_precision(self) -> SourceStatistics:
        """Return the same statistics in single precision, in which maps are computed twice as fast."""
        covariance = None if self.covariance is None else self.covariance.astype(np.float32)
        return SourceStatistics(self.num_sources, self.class_covariance.astype(np.float32), covariance)

    def class_map(self, ridge: float) -> Matrix:
        """Return M for λ = `ridge`."""
        if self.covariance is None:
            raise ValueError("these statistics have no covariance to invert; use that of the target")
        return solve_ridge(self.covariance, self.class_covariance, ridge)

    def squared_error(self, class_map: Matrix) -> float:
        """Return the mean squared error of a map on these sources, up to a constant that does not depend on the map."""
        assert self.covariance is not None
        fit = float((class_map * self.class_covariance).sum())
        return (float((class_map * (self.covariance @ class_map)).sum()) - 2 * fit) / self.num_sources


def solve_ridge(covariance: Matrix, class_covariance: Matrix, ridge: float) -> Matrix:
    """Return (A + λ · a · I)⁻¹ B, where a is the mean of the diagonal of A."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve

    scale = float(np.diagonal(covariance).mean()) or 1.0
    shifted = covariance + (ridge * scale) * np.eye(len(covariance), dtype=covariance.dtype)
    try:
        solution = cho_solve(cho_factor(shifted, check_finite=False), class_covariance, check_finite=False)
    except LinAlgError:  # a tiny λ, and eigenvalues that rounding made negative
        solution = solve(shifted, class_covariance, assume_a="sym", check_finite=False)
    return np.asarray(solution)


def choose_ridge(sources: Sequence[SourceStatistics]) -> float:
    """Return λ by leave-one-source-out: the one with the least error on a source, if fitted to the others.

    It needs no labels of the target and no further message. With a single source it is `DEFAULT_RIDGE`: validation
    within a source, by generalised cross-validation for example, chooses values that are too small for another domain.
    """
    if len(sources) < 2:
        return DEFAULT_RIDGE
    sources = [source.single_precision() for source in sources]
    everything = sum(sources[1:], sources[0])
    rest = [everything - source for source in sources]

    def error(ridge: float) -> float:
        return sum(source.squared_error(others.class_map(ridge)) for source, others in zip(sources, rest, strict=True))

    return min(RIDGES, key=error)


def low_rank(covariance: Matrix, rank: int) -> tuple[Matrix, float]:
    """Return a factor F (2N × rank, at most 2N) and r, so that A ≈ FFᵀ + r · I with the same trace.

    The columns of F are the leading eigenvectors times the square roots of their eigenvalues. Their number does not
    depend on the number of samples.
    """
    from scipy.linalg import eigh

    size = len(covariance)
    # In single precision, which takes half the time: the factor is sent in half precision.
    wanted = [size - min(rank, size), size - 1]
    values, vectors = eigh(covariance.astype(np.float32), subset_by_index=wanted, check_finite=False)
    factor = np.asarray((vectors * np.sqrt(values.clip(min=0)))[:, ::-1])
    return factor, max(0.0, float(np.trace(covariance) - np.square(factor).sum()) / size)
