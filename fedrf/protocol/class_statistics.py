"""The message of a source with its additive statistics, and numbers in half precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrf.protocol.message import ArrayMessage, BadMessageError
from fedrf.protocol.sizes import Sizes
from fedrf.tca.source_statistics import (
    FactoredStatistics,
    SourceStatistics,
    between_classes,
    low_rank,
    reduce_factored,
)

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

    The array is the first (2N × classes), the share of each class and, of the second, nothing
    (`align.statistics=means`), the upper triangle (`gram`), or a factor of the covariance within classes with
    `align.rank` columns (`lowrank`).

    Attributes
    ----------
    class_scale, scale
        Factors of the two parts of the array.
    rest
        What the diagonal of the covariance within classes has besides the factor.
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
        """Return the length of all parts."""
        if sizes.features is None:
            return None
        size = sizes.features
        second = {"means": 0, "gram": size * (size + 1) // 2, "lowrank": size * min(size, sizes.rank)}
        return ((size + 1) * sizes.classes + second.get(sizes.statistics, 0),)

    def check(self, sizes: Sizes) -> None:
        """Check the array, and that no share is negative."""
        super().check(sizes)
        end = (sizes.features or 0) * sizes.classes
        if (self.values[end : end + sizes.classes] < 0).any():
            raise BadMessageError(f"{self.kind} of {self.sender} has a negative share of a class")

    def check_bounds(self, where: str, norm: float) -> None:
        """Check that the factors are positive numbers, and the rest is not negative."""
        if not (min(self.class_scale, self.scale) > 0 and self.rest >= 0 and isfinite(sum(self.numbers()))):
            raise BadMessageError(f"{where}: factors must be positive, the rest not negative, and all finite")


def pack(
    statistics: SourceStatistics, shares: NDArray[np.floating[Any]], form: str, rank: int
) -> tuple[HalfArray, float, float, float]:
    """Return the values, scales and rest of a message.

    Parameters
    ----------
    statistics
        Of one source.
    shares
        The share of each class in the weights of its samples.
    form
        The value of `align.statistics`.
    rank
        The value of `align.rank`.
    """
    classes, covariance = statistics.class_covariance, statistics.covariance
    if form == "gram":
        second, rest = covariance[np.triu_indices(len(covariance))], 0.0
    else:
        between = between_classes(classes, shares)
        second, rest = low_rank(covariance - between @ between.T, rank if form == "lowrank" else 0)
    first, rounded = Rounded.of(classes.ravel()), Rounded.of(second.ravel())
    values = np.concatenate([first.values, shares.astype(np.float16), rounded.values])
    return values, first.scale, rounded.scale, rest


def unpack(
    messages: Sequence[ClassStatistics], form: str, features: int, classes: int
) -> tuple[list[SourceStatistics], NDArray[np.floating[Any]]]:
    """Return the statistics in messages that have been checked, and the basis of their coordinates (2N × columns)."""
    if form == "gram":
        return [_unpack_gram(message, features, classes) for message in messages], np.eye(features)
    return reduce_factored([_unpack_factored(message, features, classes) for message in messages])


def _unpack_gram(message: ClassStatistics, features: int, classes: int) -> SourceStatistics:
    """Return the statistics in single precision, in which maps are computed twice as fast."""
    class_covariance, _, second = _parts(message, features, classes)
    covariance = np.zeros((features, features), np.float32)
    covariance[np.triu_indices(features)] = second
    return SourceStatistics.of_source(class_covariance.astype(np.float32), covariance + np.triu(covariance, 1).T)


def _unpack_factored(message: ClassStatistics, features: int, classes: int) -> FactoredStatistics:
    class_covariance, shares, second = _parts(message, features, classes)
    factor = np.hstack([between_classes(class_covariance, shares), second.reshape(features, -1)])
    return FactoredStatistics(class_covariance, factor, message.rest)


def _parts(message: ClassStatistics, features: int, classes: int) -> tuple[NDArray[np.float64], ...]:
    """Return the covariance with the classes, the shares of the classes, and what follows them."""
    end = features * classes
    first = Rounded(message.values[:end], message.class_scale).restored().reshape(features, classes)
    shares = message.values[end : end + classes].astype(np.float64)
    # The column of a class that the source lacks is 0, and must be.
    return np.where(shares > 0, first, 0), shares, Rounded(message.values[end + classes :], message.scale).restored()
