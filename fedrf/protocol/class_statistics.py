"""The message of a source with its additive statistics, and numbers in half precision."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrf.protocol.message import ArrayMessage, BadMessageError
from fedrf.protocol.sizes import Sizes
from fedrf.tca.source_statistics import SourceStatistics, low_rank

HalfArray = NDArray[np.float16]


class Rounded(NamedTuple):
    """Numbers in half precision, divided by the largest so that small ones keep their digits."""

    values: HalfArray
    scale: float

    @classmethod
    def of(cls, values: NDArray[np.floating[Any]]) -> Rounded:
        """Round an array."""
        scale = float(np.abs(values).max(initial=0)) or 1.0
        return cls((values / scale).astype(np.float16), scale)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.values.nbytes + 8

    def restored(self) -> NDArray[np.float64]:
        """Return the numbers in double precision."""
        return self.scale * self.values.astype(np.float64)


@dataclass(frozen=True, eq=False)
class ClassStatistics(ArrayMessage):
    """Covariance of a source's random features with its classes, and their covariance matrix.

    The array is the first (2N × classes), followed by nothing (`align.statistics=means`), by the upper triangle of the
    second (`gram`), or by its factor with `align.rank` columns (`lowrank`).

    Attributes
    ----------
    class_scale, scale
        Factors of the two parts of the array.
    rest
        With `lowrank`: what the diagonal of the covariance has besides the factor.
    """

    kind = "class_statistics"
    dtype = "float16"
    class_scale: float
    scale: float
    rest: float

    @property
    def nbytes(self) -> int:
        """Size of the array and the three numbers in bytes."""
        return super().nbytes + 24

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return the length of both parts."""
        if sizes.features is None:
            return None
        size = sizes.features
        second = {"means": 0, "gram": size * (size + 1) // 2, "lowrank": size * min(size, sizes.rank)}
        return (size * sizes.classes + second.get(sizes.statistics, 0),)

    def check_bounds(self, where: str, norm: float) -> None:
        """Check that the factors are positive numbers, and the rest is not negative."""
        if not (min(self.class_scale, self.scale) > 0 and self.rest >= 0 and isfinite(sum(self.numbers()))):
            raise BadMessageError(f"{where}: factors must be positive, the rest not negative, and all finite")


def pack(statistics: SourceStatistics, form: str, rank: int) -> tuple[HalfArray, float, float, float]:
    """Return the values, scales and rest of a message.

    Parameters
    ----------
    form
        The value of `align.statistics`.
    rank
        The value of `align.rank`.
    """
    classes = Rounded.of(statistics.class_covariance.ravel())
    matrix: NDArray[Any]
    matrix, rest = np.zeros(0), 0.0
    if form != "means":
        assert statistics.covariance is not None
        if form == "gram":
            matrix = statistics.covariance[np.triu_indices(len(statistics.covariance))]
        else:
            matrix, rest = low_rank(statistics.covariance, rank)
    rounded = Rounded.of(matrix.ravel())
    return np.concatenate([classes.values, rounded.values]), classes.scale, rounded.scale, rest


def unpack(message: ClassStatistics, form: str, features: int, classes: int) -> SourceStatistics:
    """Return the statistics in a message that has been checked."""
    size = features * classes
    first, second = message.values[:size], message.values[size:]
    class_covariance = Rounded(first, message.class_scale).restored().reshape(features, classes)
    if form == "means":
        return SourceStatistics(1, class_covariance)
    values = Rounded(second, message.scale).restored()
    if form == "lowrank":
        factor = values.reshape(features, -1)
        return SourceStatistics(1, class_covariance, factor @ factor.T + message.rest * np.eye(features))
    covariance = np.zeros((features, features))
    covariance[np.triu_indices(features)] = values
    return SourceStatistics(1, class_covariance, covariance + np.triu(covariance, 1).T)
