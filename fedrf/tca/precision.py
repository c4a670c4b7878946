"""Double precision on devices that do not have it."""

from __future__ import annotations

from torch import Tensor

WITHOUT_FLOAT64 = {"mps"}  # types of devices


def where_float64(values: Tensor) -> Tensor:
    """Return the values on a device that has double precision: their own, or else the host."""
    return values.cpu() if values.device.type in WITHOUT_FLOAT64 else values


def in_double(values: Tensor) -> Tensor:
    """Return the values in double precision, on their device or else on the host."""
    return where_float64(values).double()
