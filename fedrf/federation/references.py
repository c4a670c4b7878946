"""The client's side of compressed parts: what it holds of each, and what rounding has left out of what it sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrf.federation.progress import Progress
from fedrf.protocol.compression import Array, Codec, Difference, rounded


class References:
    """Turns parts into differences and back.

    Parameters
    ----------
    progress
        Has the averages that the client loaded last, their numbers and the residuals, which checkpoints keep.
    codec
        How parts are coded; None: they are sent whole.
    """

    def __init__(self, progress: Progress, codec: Codec | None) -> None:
        self.progress, self.codec = progress, codec

    def shorten(self, part: str, values: Array) -> Array | Difference:
        """Return what to send of a part: its change since the average that the client has loaded, if there is one."""
        progress, reference = self.progress, self.progress.references.get(part)
        if self.codec is None or reference is None:
            return values
        wanted = values - reference
        if (residual := progress.residuals.get(part)) is not None:
            wanted += residual
        if not np.isfinite(wanted).all():
            return values  # is refused
        code, change = rounded(self.codec, wanted)
        progress.residuals[part] = wanted - change
        return Difference(progress.held[part], (code,))

    def restore(self, part: str, values: Any, number: int | None) -> Array:
        """Return the average in a reply, and remember it under its number."""
        if isinstance(values, Difference):
            values = self._changed(part, values)
        if number is not None:
            self.progress.held[part], self.progress.references[part] = number, values
        average: Array = values
        return average

    def _changed(self, part: str, difference: Difference) -> Array:
        average, progress = self.progress.references[part], self.progress
        assert self.codec is not None
        if progress.held[part] != difference.base:
            raise RuntimeError(f"{part}: a change of average {difference.base}; this client has {progress.held[part]}")
        for code in difference.steps:
            average = average + self.codec.decode(code, average.shape)
        return average

    def forget_residuals(self) -> None:
        """Drop what rounding has left out, because it belongs to parts that are replaced."""
        self.progress.residuals.clear()

    def forget(self) -> None:
        """Begin again with whole parts."""
        for kept in (self.progress.held, self.progress.references, self.progress.residuals):
            kept.clear()
