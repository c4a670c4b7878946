"""Matrices with few bits for each number."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Quantized(NamedTuple):
    """A matrix of small integers and a factor for each column: its largest number has the largest integer.

    Attributes
    ----------
    values
        Integers (rows × columns).
    scales
        Factors of the columns, in single precision.
    """

    values: NDArray[np.signedinteger[Any]]
    scales: NDArray[np.float32]

    @classmethod
    def of(cls, matrix: NDArray[np.floating[Any]], dtype: str = "int8", largest: int | None = None) -> Quantized:
        """Round the numbers of a matrix to integers of a type, of which `largest`, or the type's, is the largest."""
        steps = np.abs(matrix).max(axis=0, initial=0) / (largest or np.iinfo(dtype).max)
        scales = np.where(steps > np.finfo(np.float32).tiny, steps, 1).astype(np.float32)
        return cls(np.rint(matrix / scales).astype(dtype), scales)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.values.nbytes + self.scales.nbytes

    def restored(self) -> NDArray[np.float64]:
        """Return the numbers in double precision."""
        return self.values.astype(np.float64) * self.scales
