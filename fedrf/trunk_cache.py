"""What backbones made of samples, on disk: a row a sample, shared by all runs and processes of this machine.

A file has all rows of a domain under one key, most of them holes at first. A row counts once its mark is set, which is
after it was written: a crash loses what was being computed and no more, clients that hold different parts of a domain
fill the same file, and so do processes that need the same rows. Nobody waits for a lock, and what two of them compute
twice is the same. A file that is removed to make room lives on for those who have it open.
"""

from __future__ import annotations

import errno
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
    """Return what the cache takes on disk; rows that were never written take nothing."""
    return sum(size for size, _ in _entries().values())


def _entries() -> dict[Path, tuple[int, float]]:
    """Return size and time of last use of each file."""
    found = {}
    for path in cache_folder().glob(f"*{SUFFIX}"):
        try:
            stat = path.stat()
        except FileNotFoundError:  # another process made room
            continue
        found[path] = (512 * stat.st_blocks, stat.st_mtime)
    return found


def make_room(needed: int, key: str) -> bool:
    """Remove what was not used for longest until `needed` bytes more fit under `key`; tell whether they do."""
    entries, limit = _entries(), limit_bytes()
    total = sum(size for size, _ in entries.values())
    if entries.pop(_path(key), (0, 0.0))[0] + needed > limit:
        return False
    for path, (size, _) in sorted(entries.items(), key=lambda entry: entry[1][1]):
        if total + needed <= limit:
            break
        path.unlink(missing_ok=True)
        total -= size
    return True


def _path(key: str) -> Path:
    return cache_folder() / f"{key}{SUFFIX}"


class Entry:
    """The rows of one domain under one key, in an open file: header, a mark for each row, rows."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        about = json.loads(os.pread(file.fileno(), HEADER, 0).rstrip(b"\0"))
        self.count, self.dtype, self.shape = about["count"], np.dtype(about["dtype"]), tuple(about["shape"])
        self._start = HEADER + -(-self.count // HEADER) * HEADER

    @classmethod
    def find(cls, key: str) -> Entry | None:
        """Open the file of a key, if there is one."""
        try:
            entry = cls(_path(key).open("r+b"))
        except FileNotFoundError:
            return None
        os.utime(_path(key))
        return entry

    @classmethod
    def make(cls, key: str, count: int, sample: NDArray[Any]) -> Entry:
        """Make a file for `count` rows like `sample`, and open it."""
        about = json.dumps({"count": count, "dtype": sample.dtype.name, "shape": sample.shape}).encode()
        with _complaining():
            cache_folder().mkdir(parents=True, exist_ok=True)
            number, draft = mkstemp(dir=cache_folder())
            file = os.fdopen(number, "r+b", buffering=0)
            file.write(about.ljust(HEADER, b"\0"))
            entry = cls(file)
            file.truncate(entry._start + count * sample.nbytes)
            os.replace(draft, _path(key))
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
def _complaining() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{cache_folder()}: cannot be written ({error.strerror}); name another folder in FEDRF_CACHE, or set "
            "model.cache=memory"
        ) from error
