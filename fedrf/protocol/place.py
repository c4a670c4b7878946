"""Where a client runs, as it says of itself once, for the records."""

from __future__ import annotations

from typing import NamedTuple

from fedrf.protocol.message import BadMessageError

MAX_NAME = 100  # characters
MAX_MEMORY = 2**50  # bytes


class Place(NamedTuple):
    """The node and the device of a client.

    Attributes
    ----------
    node
        The name of the host.
    device
        The device in torch, such as ``cuda:0``.
    model
        The name of the hardware.
    memory
        The memory of the device, in bytes.
    """

    node: str
    device: str
    model: str
    memory: int

    def check(self, sender: str) -> None:
        """Raise `BadMessageError` if a text is too long or the memory is no such number."""
        if max(map(len, (self.node, self.device, self.model))) > MAX_NAME or not 0 <= self.memory <= MAX_MEMORY:
            raise BadMessageError(f"{sender} says that it is in a place that cannot be: {self!s:.200}")
