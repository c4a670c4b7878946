r"""Classifiers from additive statistics: one message of each source is enough, and no round of training is needed.

Source i has the covariance A_i of its random features (2N × 2N) and their covariance B_i with the indicators of the
classes (2N × classes), both with the source's own mean removed. They add up over sources, and the map from centred
random features to class scores is the solution of the ridge regression

    M = (Σ_i A_i + λ · a · I)⁻¹ Σ_i B_i,

where a is the mean of the diagonal of Σ_i A_i. To add a source is to add its statistics, and to remove it is to
subtract them. In the sums, source i has the weight w_i ∝ 1 / |Σℓ_i − Σℓ_target|: sources that are similar to the target
count more.

A_i is the sum of the covariance between classes, which follows from B_i and the shares of the classes, and of the
covariance within classes, which can be compressed to its largest components.

The coordinator uses this module, so it does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating[Any]]

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # candidates for λ
DEFAULT_RIDGE = 1.0
MAX_WEIGHT_RATIO = 10.0


@dataclass(frozen=True, eq=False)
class SourceStatistics:
    """Covariances, summed over sources.

    Attributes
    ----------
    weight
        Sum of the sources' weights; 1 for the statistics of one source.
    class_covariance
        Σ_i w_i B_i (2N × classes).
    covariance
        Σ_i w_i A_i (2N × 2N).
    variance
        The mean of the diagonal of Σ_i w_i A_i. If the two matrices are coordinates in a smaller basis
        (`reduce_factored`), it is still that of the 2N × 2N matrix.
    """

    weight: float
    class_covariance: Matrix
    covariance: Matrix
    variance: float

    @classmethod
    def of_source(cls, class_covariance: Matrix, covariance: Matrix) -> SourceStatistics:
        """Return the statistics of one source."""
        return cls(1, class_covariance, covariance, float(np.diagonal(covariance).mean()))

    def __add__(self, other: SourceStatistics) -> SourceStatistics:
        if self.class_covariance.shape != other.class_covariance.shape:
            raise ValueError(
                f"cannot add statistics of shapes {self.class_covariance.shape} and {other.class_covariance.shape}: "
                "numbers of features and classes must be the same"
            )
        return SourceStatistics(
            self.weight + other.weight,
            self.class_covariance + other.class_covariance,
            self.covariance + other.covariance,
            self.variance + other.variance,
        )

    def __sub__(self, other: SourceStatistics) -> SourceStatistics:
        return self + -1.0 * other

    def __rmul__(self, factor: float) -> SourceStatistics:
        return SourceStatistics(
            factor * self.weight,
            factor * self.class_covariance,
            factor * self.covariance,
            factor * self.variance,
        )

    def class_map(self, ridge: float) -> Matrix:
        """Return M for λ = `ridge`."""
        from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve

        shift = ridge * (self.variance or 1.0)
        shifted = self.covariance + shift * np.eye(len(self.covariance), dtype=self.covariance.dtype)
        try:
            solution = cho_solve(cho_factor(shifted, check_finite=False), self.class_covariance, check_finite=False)
        except LinAlgError:  # a tiny λ, and eigenvalues that rounding made negative
            solution = solve(shifted, self.class_covariance, assume_a="sym", check_finite=False)
        return np.asarray(solution)

    def squared_error(self, class_map: Matrix) -> float:
        """Return the mean squared error of a map on these sources, up to a constant that does not depend on the map."""
        fit = float((class_map * self.class_covariance).sum())
        return (float((class_map * (self.covariance @ class_map)).sum()) - 2 * fit) / self.weight


def total_of(sources: Sequence[SourceStatistics]) -> SourceStatistics:
    """Return the sum of statistics."""
    return reduce(add, sources)


class FactoredStatistics(NamedTuple):
    """Statistics of one source whose covariance is A = FFᵀ + r · I, with the columns of B in the span of those of F.

    Attributes
    ----------
    class_covariance
        B (2N × classes).
    factor
        F (2N × columns).
    rest
        r.
    """

    class_covariance: Matrix
    factor: Matrix
    rest: float


def reduce_factored(
    sources: Sequence[FactoredStatistics], others: Matrix | None = None
) -> tuple[list[SourceStatistics], Matrix]:
    """Return the statistics of all sources in coordinates of a common orthonormal basis, and that basis (2N × columns).

    The basis spans the factors of all sources, and the columns of `others`. Outside of it every A is a multiple of the
    identity and every B is 0, so that the map M from any sum of the statistics is, exactly, the basis times the map in
    its coordinates.
    """
    factors = np.hstack([*(source.factor for source in sources), *([] if others is None else [others])])
    basis = np.linalg.qr(factors)[0] if factors.shape[1] < len(factors) else np.eye(len(factors))
    size, count = basis.shape
    reduced = []
    for class_covariance, factor, rest in sources:
        inside = basis.T @ factor
        variance = np.square(factor).sum() / size + rest
        covariance = inside @ inside.T + rest * np.eye(count)
        reduced.append(SourceStatistics(1, basis.T @ class_covariance, covariance, float(variance)))
    return reduced, basis


def source_weights(discrepancies: Matrix) -> list[float]:
    """Return a weight for each source, inverse to the distance of its Σℓ from that of the target; their mean is 1.

    No source counts more than `MAX_WEIGHT_RATIO` times as much as another.

    Parameters
    ----------
    discrepancies
        Σℓ of each source minus that of the target, in columns.
    """
    distances = np.linalg.norm(discrepancies.astype(np.float64), axis=0)
    weights = 1 / distances.clip(min=max(distances.max() / MAX_WEIGHT_RATIO, np.finfo(np.float32).tiny))
    return [float(weight) for weight in weights / weights.mean()]


def choose_ridge(sources: Sequence[SourceStatistics], weights: Sequence[float]) -> float:
    """Return λ by leave-one-source-out: the one with the least error on a source, if fitted to the others.

    It needs no labels of the target and no further message. The errors have the sources' weights: sources that are
    similar to the target tell more about it. With a single source λ is `DEFAULT_RIDGE`: validation within a source, by
    generalised cross-validation for example, chooses values that are too small for another domain.
    """
    if len(sources) < 2:
        return DEFAULT_RIDGE
    weighted = [weight * source for weight, source in zip(weights, sources, strict=True)]
    everything = total_of(weighted)
    rest = [everything - source for source in weighted]

    def error(ridge: float) -> float:
        left_out = zip(weights, sources, rest, strict=True)
        return sum(weight * source.squared_error(others.class_map(ridge)) for weight, source, others in left_out)

    return min(RIDGES, key=error)


def between_classes(class_covariance: Matrix, shares: Matrix) -> Matrix:
    """Return a factor of the covariance between classes of one source: columns b_c / √s_c, of B and the shares."""
    present = shares > 0
    return np.asarray(class_covariance[:, present] / np.sqrt(shares[present]))


def low_rank(covariance: Matrix, rank: int, device: str = "cpu") -> tuple[Matrix, float]:
    """Return a factor F (2N × rank, at most 2N) and r, so that A ≈ FFᵀ + r · I with the same trace.

    The columns of F are the leading eigenvectors times the square roots of their eigenvalues. Their number does not
    depend on the number of samples. They are computed in single precision, because they are sent with few bits; on
    `device`, or on the host where that has no double precision, and then no eigenvectors either.
    """
    import torch

    from fedrf.tca.eigen import leading_eigenpairs
    from fedrf.tca.precision import WITHOUT_FLOAT64

    size = len(covariance)
    factor = np.zeros((size, 0))
    if rank:
        place = "cpu" if torch.device(device).type in WITHOUT_FLOAT64 else device
        values, vectors = leading_eigenpairs(torch.from_numpy(covariance).float().to(place), min(rank, size))
        factor = (vectors * values.clamp(min=0).sqrt()).cpu().double().numpy()
    return factor, max(0.0, float(np.trace(covariance) - np.square(factor).sum()) / size)
