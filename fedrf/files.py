"""Atomic, durable writes, and folders that one process uses at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object], private: bool = False) -> None:
    """Let `write` fill a temporary file in the same folder, and rename it to `path`.

    After a crash or a power failure there is either the old file or the whole new one. Only its owner can read a
    `private` file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if private:
            temporary.touch(mode=0o600)
        write(temporary)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path, message: str) -> Iterator[None]:
    """Lock a folder against other calls; a `ValueError` with the message if one has locked it."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(message) from None
        yield
