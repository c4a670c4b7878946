"""The message of a source with its additive statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrf.protocol.message import ArrayMessage, BadMessageError
from fedrf.protocol.quantized import Quantized
from fedrf.protocol.sizes import Sizes
from fedrf.tca.source_statistics import (
    FactoredStatistics,
    SourceStatistics,
    between_classes,
    low_rank,
    reduce_factored,
)


@dataclass(frozen=True, eq=False)
class ClassStatistics(ArrayMessage):
    """Covariance of a source's random features with its classes, and a factor of their covariance within classes.

    The columns of the array are the first (2N × classes) and those of the factor: none (`align.statistics=means`),
    `align.rank` (`lowrank`) or 2N (`gram`). Numbers have one byte, two with `gram`.

    Attributes
    ----------
    scales
        Factors of the columns.
    shares
        The share of each class in the weights of the samples.
    rest
        What the diagonal of the covariance within classes has besides the factor.
    """

    kind = "class_statistics"
    scales: NDArray[np.float32]
    shares: NDArray[np.float32]
    rest: float

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return super().nbytes + self.scales.nbytes + self.shares.nbytes + 8

    def numbers(self) -> list[Any]:
        """Return what must be plain numbers."""
        return [self.round, self.attempt, self.rest]

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return 2N and the number of columns."""
        if sizes.features is None or sizes.statistics == "none":
            return None
        return sizes.features, sizes.classes + num_components(sizes.statistics, sizes.rank, sizes.features)

    def check(self, sizes: Sizes) -> None:
        """Check the arrays, and that factors, shares and the rest are finite and not negative."""
        where, shape = f"{self.kind} of {self.sender}", self.shape(sizes)
        columns = None if shape is None else shape[1]
        for name, expected in (("scales", columns), ("shares", sizes.classes)):
            values = getattr(self, name)
            if not isinstance(values, np.ndarray) or values.dtype != np.float32:
                raise BadMessageError(f"{where}: {name} must be a float32 array")
            if expected is not None and values.shape != (expected,):
                raise BadMessageError(f"{where}: {name} must have shape {(expected,)}; got {values.shape}")
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise BadMessageError(f"{where}: {name} must be finite and not negative")
        if not (isfinite(self.rest) and self.rest >= 0):
            raise BadMessageError(f"{where}: the rest must be finite and not negative")
        super().check(sizes)

    @classmethod
    def dtype_of(cls, sizes: Sizes) -> str:
        """Return the type of the numbers."""
        return integers_of(sizes.statistics)


def num_components(form: str, rank: int, features: int) -> int:
    """Return the number of columns of the factor, from the values of `align.statistics` and `align.rank`."""
    return {"means": 0, "lowrank": min(rank, features)}.get(form, features)


def integers_of(form: str) -> str:
    """Return the type of the numbers for a value of `align.statistics`."""
    return "int16" if form == "gram" else "int8"


def pack(
    statistics: SourceStatistics, shares: NDArray[np.floating[Any]], form: str, rank: int, device: str = "cpu"
) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float32], float]:
    """Return the values, scales, shares and rest of a message.

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
    device
        Where eigenvectors are computed, as torch names it.
    """
    classes, covariance = statistics.class_covariance, statistics.covariance
    between = between_classes(classes, shares)
    factor, rest = low_rank(covariance - between @ between.T, num_components(form, rank, len(covariance)), device)
    values, scales = Quantized.of(np.hstack([classes, factor]), integers_of(form))
    return values, scales, shares.astype(np.float32), rest


def unpack(
    messages: Sequence[ClassStatistics], others: NDArray[np.floating[Any]] | None = None
) -> tuple[list[SourceStatistics], NDArray[np.floating[Any]]]:
    """Return the statistics in messages that have been checked, and the basis of their coordinates (2N × columns).

    The basis spans the columns of `others` too.
    """
    return reduce_factored([factored(message) for message in messages], others)


def factored(message: ClassStatistics) -> FactoredStatistics:
    """Return the statistics in a message that has been checked."""
    columns, shares = Quantized(message.values, message.scales).restored(), message.shares.astype(np.float64)
    classes, factor = columns[:, : len(shares)], columns[:, len(shares) :]
    # The column of a class that the source lacks must be 0.
    classes = np.where(shares > 0, classes, 0)
    return FactoredStatistics(classes, np.hstack([between_classes(classes, shares), factor]), message.rest)
