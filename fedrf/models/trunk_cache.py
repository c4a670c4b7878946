"""What backbones made of samples, on disk: a row a sample, shared by all runs and processes of this machine.

A file has all rows of a domain under one key, most of them holes at first. A row counts once its mark is set, which is
after it was written: a crash loses what was being computed and no more, clients that hold different parts of a domain
fill the same file, and so do processes that need the same rows: what two of them compute twice is the same. Room is
reserved before anything is computed. A file that is removed to make room lives on for those who have it open.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

DEFAULT_GB = 20.0
SUFFIX = ".rows"
HEADER = 4096  # bytes, for what the rows are
Rows = NDArray[np.int64]


def cache_folder() -> Path:
    """Return $FEDRF_CACHE, else the user's cache folder."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedrf"
    return Path(os.environ.get("FEDRF_CACHE") or usual).expanduser()


def limit_bytes() -> int:
    """Return how much the cache may hold: $FEDRF_CACHE_GB, else 20 GB."""
    given = os.environ.get("FEDRF_CACHE_GB")
    try:
        limit = DEFAULT_GB if not given else float(given)
        if not limit >= 0:
            raise ValueError
        return int(1e9 * limit)
    except (ValueError, OverflowError):
        raise ValueError(f"FEDRF_CACHE_GB={given!r}: must be a number of gigabytes, at least 0") from None


def used_bytes() -> int:
    """Return what the cache takes on disk, or will take when those who fill it are done."""
    return sum(size for size, _ in _entries().values())


def _entries() -> dict[Path, tuple[int, float]]:
    """Return size and time of last use of each file."""
    found = {}
    for path in cache_folder().glob(f"*{SUFFIX}"):
        try:
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                reserved = _read_header(file).get("reserved", 0)
        except (OSError, ValueError):  # removed by another process, or damaged
            continue
        found[path] = (max(512 * stat.st_blocks, reserved), stat.st_mtime)
    return found


def _make_room(needed: int, path: Path) -> bool:
    """Remove what was not used for longest until a file of `needed` bytes fits; tell whether it does."""
    entries, limit = _entries(), limit_bytes()
    entries.pop(path, None)
    if needed > limit:
        return False
    total = needed + sum(size for size, _ in entries.values())
    for other, (size, _) in sorted(entries.items(), key=lambda entry: entry[1][1]):
        if total <= limit:
            break
        other.unlink(missing_ok=True)
        total -= size
    return True


def _path(key: str) -> Path:
    return cache_folder() / f"{key}{SUFFIX}"


def _read_header(file: BinaryIO) -> dict[str, Any]:
    about = json.loads(os.pread(file.fileno(), HEADER, 0).rstrip(b"\0"))
    if not isinstance(about, dict):
        raise ValueError("no header")
    return about


class Entry:
    """The rows of one domain under one key, in an open file: header, a mark for each row, rows."""

    def __init__(self, file: BinaryIO) -> None:
        about = _read_header(file)
        self._file, self._about = file, about
        self.count, self.dtype, self.shape = about["count"], np.dtype(about["dtype"]), tuple(about["shape"])
        self._start = HEADER + -(-self.count // HEADER) * HEADER
        self._row_bytes = int(np.prod(self.shape)) * self.dtype.itemsize

    @classmethod
    def find(cls, key: str) -> Entry | None:
        """Open the file of a key, if there is one that is whole."""
        path = _path(key)
        with _complaining():
            try:
                entry = cls(path.open("r+b"))
                os.utime(path)
                if os.fstat(entry._file.fileno()).st_size == entry._start + entry.count * entry._row_bytes:
                    return entry
            except FileNotFoundError:
                return None
            except (ValueError, KeyError, TypeError):
                pass
            path.unlink(missing_ok=True)  # cut off, or no sense in it
        return None

    @classmethod
    def reserve(cls, key: str, count: int, sample: NDArray[Any], rows: Rows) -> Entry | None:
        """Open the file of a key, or make it for `count` rows like `sample`; None if `rows` do not fit in."""
        with _complaining(), _lock():
            entry = cls.find(key) or cls._make(_path(key), count, sample)
            taken = 512 * os.fstat(entry._file.fileno()).st_blocks
            needed = max(taken, entry._about.get("reserved", 0)) + len(entry.missing(rows)) * entry._row_bytes
            needed = min(needed, entry._start + count * entry._row_bytes)  # others may have reserved the same rows
            if not _make_room(needed, _path(key)):
                if len(entry.missing(np.arange(count))) == count:
                    _path(key).unlink(missing_ok=True)
                return None
            entry._put(json.dumps(entry._about | {"reserved": needed}).encode().ljust(HEADER, b"\0"), 0)
        return entry

    @classmethod
    def _make(cls, path: Path, count: int, sample: NDArray[Any]) -> Entry:
        about = json.dumps({"count": count, "dtype": sample.dtype.name, "shape": sample.shape}).encode()
        number, draft = mkstemp(dir=path.parent)
        try:
            file = os.fdopen(number, "r+b", buffering=0)
            file.write(about.ljust(HEADER, b"\0"))
            entry = cls(file)
            file.truncate(entry._start + count * sample.nbytes)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
        return entry

    def missing(self, rows: Rows) -> Rows:
        """Return those of the rows that are not there yet."""
        marks = np.frombuffer(os.pread(self._file.fileno(), self.count, HEADER), dtype=np.uint8)
        missing: Rows = rows[marks[rows] == 0]
        return missing

    def write(self, rows: Rows, values: NDArray[Any]) -> None:
        """Write some rows, then mark them."""
        values = np.ascontiguousarray(values)
        with _complaining():
            for row, value in zip(rows, values, strict=True):
                self._put(value.tobytes(), self._start + int(row) * value.nbytes)
            os.fdatasync(self._file.fileno())
            for row in rows:
                self._put(b"\1", HEADER + int(row))

    def _put(self, content: bytes, position: int) -> None:
        if os.pwrite(self._file.fileno(), content, position) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def values(self) -> NDArray[Any]:
        """Return all rows, mapped into memory; those that are missing are zeros."""
        return np.memmap(self._file, self.dtype, mode="r", offset=self._start, shape=(self.count, *self.shape))


@contextmanager
def _lock() -> Iterator[None]:
    """Let one process at a time see what is free and take it."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _complaining() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{cache_folder()}: cannot be used ({error.strerror}); name another folder in FEDRF_CACHE, or set "
            "model.cache=memory"
        ) from error
