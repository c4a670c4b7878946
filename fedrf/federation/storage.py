"""Where a client writes and reads its files: in the run directory if it can, otherwise through the coordinator."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np

from fedrf.federation.channel import Channel
from fedrf.files import write_atomically
from fedrf.ownership import Fence

PIECE_BYTES = 2**19


class Storage(Protocol):
    """The files that a client leaves behind. Names are relative to the run directory."""

    def write(self, name: str, content: bytes, private: bool = False) -> None:
        """Write a file, completely or not at all; only its owner can read a `private` one."""

    def read(self, name: str) -> bytes:
        """Return the content of a file; a `FileNotFoundError` if there is none."""


class SharedFolder:
    """The run directory itself.

    Parameters
    ----------
    fence
        Allows writing to it.
    """

    def __init__(self, fence: Fence) -> None:
        self.fence = fence

    def write(self, name: str, content: bytes, private: bool = False) -> None:
        """Write a file."""
        self.fence.check()
        write_atomically(self.fence.run / name, lambda path: path.write_bytes(content), private)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self.fence.run / name).read_bytes()


class ThroughCoordinator:
    """The run directory on another machine: files cross in pieces, and their digest is compared at the end."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def write(self, name: str, content: bytes, private: bool = False) -> None:
        """Send a file; at the other end, only the owner of the run can read it."""
        digest, values = hashlib.sha256(content).hexdigest(), np.frombuffer(content, np.uint8)
        for start in range(0, max(1, len(content)), PIECE_BYTES):
            self.channel.upload(name, start, len(content), digest, values[start : start + PIECE_BYTES])

    def read(self, name: str) -> bytes:
        """Fetch a file."""
        content, size = bytearray(), 1
        while len(content) < size:
            size, piece = self.channel.download(name, len(content))
            content += piece
        return bytes(content)


def storage_of(channel: Channel) -> Storage:
    """Return where a client's files are."""
    run = channel.info.run
    return SharedFolder(channel.info.fence) if (run / "owner.json").exists() else ThroughCoordinator(channel)
