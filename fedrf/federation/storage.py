"""Where a client writes and reads its files.

In `track.storage` if that is set, in the run directory if it is visible here, and through the coordinator otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from fedrf.federation.channel import Channel
from fedrf.federation.checkpoints import files_root
from fedrf.federation.uploads import PIECE_BYTES
from fedrf.ownership import RunTakenOverError
from fedrf.store import read_whole, write_whole


class Storage(Protocol):
    """The files that a client leaves behind. Names are relative to the run directory."""

    def write(self, name: str, content: bytes, private: bool = False) -> None:
        """Write a file, completely or not at all; only its owner can read a `private` one."""

    def read(self, name: str) -> bytes:
        """Return the content of a file; a `FileNotFoundError` if there is none."""


class SharedFolder:
    """A folder that both the client and the driver see.

    Parameters
    ----------
    root
        The folder.
    check
        Raises if this process may not write.
    """

    def __init__(self, root: Path, check: Callable[[], object]) -> None:
        self.root, self.check = root, check

    def write(self, name: str, content: bytes, private: bool = False) -> None:
        """Write a file."""
        self.check()
        write_whole(self.root / name, content, private)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return read_whole(self.root / name)


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
            if not piece:
                raise OSError(f"{name} has become shorter while it was read")
            content += piece
        return bytes(content)


def storage_of(channel: Channel, url: str = "") -> Storage:
    """Return where a client's files are, if `track.storage` is `url`."""
    info = channel.info
    if url:  # only the current process of a client is answered
        return SharedFolder(files_root(info.run, url), channel.beat)
    try:
        info.fence.check()  # another file of that name may be on this node, of a run that began here
    except RunTakenOverError:
        return ThroughCoordinator(channel)
    return SharedFolder(info.run, info.fence.check)
