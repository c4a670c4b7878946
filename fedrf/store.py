"""Files on a disk or in an object store (`track.storage`).

A call to a store that fails is repeated, with pauses that add up to half a minute. After that it is an `OSError`, which
ends the run with one line; the run can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from fedrf.errors import reason
from fedrf.files import write_atomically

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)  # seconds between calls
FINAL = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
T = TypeVar("T")


def folder_at(url: str) -> Path:
    """Return a folder on a disk or in an object store; the store is not asked for anything."""
    from upath import UPath  # takes a while, and most runs have no store

    if url.startswith(("file://", "local://")):
        return Path(url.partition("://")[2])
    # Without a cache of listings, which would not show what other processes write.
    return cast(Path, UPath(url, use_listings_cache=False))


def usable_folder_at(url: str) -> Path:
    """Return a folder; a `ValueError` if no installed package knows its store, or the store gives no answer."""
    try:
        folder = folder_at(url)
        if not is_on_disk(folder):
            cast(Any, folder).fs  # noqa: B018  # imports the package of the store
        _repeatedly(folder, folder.exists)
    except Exception as error:  # packages of stores have errors of their own, such as for credentials
        cause = error.__cause__ or error
        raise ValueError(f"track.storage={url}: cannot be used ({type(cause).__name__}: {reason(cause)})") from error
    return folder


def is_on_disk(path: Path) -> bool:
    """Return whether a path is on a disk, and not in an object store."""
    return type(path).__module__.startswith("pathlib")


def write_whole(path: Path, content: bytes, private: bool = False) -> None:
    """Write a file completely or not at all; on a disk, only its owner can read a `private` one."""
    if is_on_disk(path):
        write_atomically(path, lambda draft: draft.write_bytes(content), private)
    else:
        _repeatedly(path, lambda: path.write_bytes(content))


def read_whole(path: Path) -> bytes:
    """Return the content of a file; a `FileNotFoundError` if there is none."""
    return _repeatedly(path, path.read_bytes)


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a folder whose names match, by name; none if there is no such folder."""
    found = _repeatedly(folder, lambda: list(folder.glob(pattern)) if folder.exists() else [])
    return sorted(found, key=lambda path: path.name)


def delete(path: Path) -> None:
    """Delete a file, if there is one."""
    _repeatedly(path, lambda: path.unlink(missing_ok=True))


def _repeatedly(path: Path, operation: Callable[[], T]) -> T:
    """Return the result of an operation, which is repeated if a store fails."""
    if is_on_disk(path):
        return operation()
    for pause in PAUSES:
        try:
            return operation()
        except FINAL:
            raise
        except Exception:  # each package of a store has errors of its own
            time.sleep(pause)
    try:
        return operation()
    except FINAL:
        raise
    except Exception as error:
        text = f"track.storage: {path} cannot be used ({type(error).__name__}: {reason(error)})"
        raise OSError(text) from error
