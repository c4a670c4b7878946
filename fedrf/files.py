"""Atomic, durable writes, and folders that one process uses at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast


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


def folder_at(url: str) -> Path:
    """Return a folder on a disk or in an object store; a `ValueError` if no installed package knows the store."""
    from upath import UPath  # takes a while, and most runs have no store

    if url.startswith(("file://", "local://")):
        return Path(url.partition("://")[2])
    try:
        # Without a cache of listings, which would not show what other processes write.
        folder = cast(Path, UPath(url, use_listings_cache=False))
        folder.exists()
    except (ValueError, ImportError, OSError) as error:
        raise ValueError(f"track.storage={url}: cannot be used ({type(error).__name__}: {error})") from error
    return folder


def write_whole(path: Path, content: bytes, private: bool = False) -> None:
    """Write a file on a disk or in an object store, completely or not at all."""
    if type(path).__module__.startswith("pathlib"):
        write_atomically(path, lambda draft: draft.write_bytes(content), private)
    else:
        path.write_bytes(content)


@contextmanager
def locked(folder: Path, message: str) -> Iterator[None]:
    """Lock a folder against other calls; a `ValueError` with the message if one has locked it."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(message) from None
        yield
