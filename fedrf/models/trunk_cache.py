"""Cache of trunk outputs on disk, shared by all runs and processes of a machine.

Each file holds the outputs of one domain under one key, one row per sample. It is sparse: rows that were not computed
take no space. A row is valid once its mark is set, which happens after the row was written, so that a crash loses only
the rows in progress. Several processes can fill the same file; a row that two of them compute has the same value. Space
is reserved before rows are computed. A file that is evicted stays readable for processes that have it open.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

DEFAULT_GB = 20.0
SUFFIX = ".rows"
FLUSH_SECONDS = 1.0  # between waits for the disk
HEADER = 4096  # bytes; JSON with number, type and shape of the rows
Rows = NDArray[np.int64]


def cache_folder() -> Path:
    """Return $FEDRF_CACHE; by default, fedrf's folder in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedrf"
    return Path(os.environ.get("FEDRF_CACHE") or default).expanduser()


def limit_bytes() -> int:
    """Return the maximum size of the cache: $FEDRF_CACHE_GB, by default 20 GB."""
    given = os.environ.get("FEDRF_CACHE_GB")
    try:
        limit = DEFAULT_GB if not given else float(given)
        if not limit >= 0:
            raise ValueError
        return int(1e9 * limit)
    except (ValueError, OverflowError):
        raise ValueError(f"FEDRF_CACHE_GB={given!r}: must be a number of gigabytes, at least 0") from None


def used_bytes() -> int:
    """Return the size of the cache on disk, including reserved space."""
    return sum(size for size, _ in _entries().values())


def _entries() -> dict[Path, tuple[int, float]]:
    """Return size and time of last use of each file."""
    entries = {}
    for path in cache_folder().glob(f"*{SUFFIX}"):
        try:
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                reserved = _read_header(file).get("reserved", 0)
        except (OSError, ValueError):  # removed by another process, or damaged
            continue
        entries[path] = (max(512 * stat.st_blocks, reserved), stat.st_mtime)
    return entries


def _make_room(needed: int, path: Path) -> bool:
    """Remove the least recently used files until `path` can have `needed` bytes; return whether it can."""
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
    header = json.loads(os.pread(file.fileno(), HEADER, 0).rstrip(b"\0"))
    if not isinstance(header, dict):
        raise ValueError("no header")
    return header


class Entry:
    """An open cache file: header, one mark per row, rows."""

    def __init__(self, file: BinaryIO) -> None:
        header = _read_header(file)
        self._file, self._header = file, header
        self.count, self.dtype, self.shape = header["count"], np.dtype(header["dtype"]), tuple(header["shape"])
        self._start = HEADER + -(-self.count // HEADER) * HEADER
        self._row_bytes = int(np.prod(self.shape)) * self.dtype.itemsize
        self._unmarked: list[int] = []
        self._marked_at = time.monotonic()

    @classmethod
    def find(cls, key: str) -> Entry | None:
        """Open the file of a key; None if there is no intact one."""
        path = _path(key)
        with _errors_explained():
            try:
                entry = cls(path.open("r+b"))
                os.utime(path)
                if os.fstat(entry._file.fileno()).st_size == entry._start + entry.count * entry._row_bytes:
                    return entry
            except FileNotFoundError:
                return None
            except (ValueError, KeyError, TypeError):
                pass
            path.unlink(missing_ok=True)  # truncated or damaged
        return None

    @classmethod
    def reserve(cls, key: str, count: int, sample: NDArray[Any], rows: Rows) -> Entry | None:
        """Open or create the file of a key and reserve space for `rows`; None if they do not fit into the cache.

        A new file has `count` rows with the type and shape of `sample`.
        """
        with _errors_explained(), _lock():
            entry = cls.find(key) or cls._create(_path(key), count, sample)
            used = 512 * os.fstat(entry._file.fileno()).st_blocks
            needed = max(used, entry._header.get("reserved", 0)) + len(entry.missing(rows)) * entry._row_bytes
            needed = min(
                needed, entry._start + count * entry._row_bytes
            )  # other processes may have reserved the same rows
            if not _make_room(needed, _path(key)):
                if len(entry.missing(np.arange(count))) == count:
                    _path(key).unlink(missing_ok=True)
                return None
            entry._write_at(json.dumps(entry._header | {"reserved": needed}).encode().ljust(HEADER, b"\0"), 0)
        return entry

    @classmethod
    def _create(cls, path: Path, count: int, sample: NDArray[Any]) -> Entry:
        header = json.dumps({"count": count, "dtype": sample.dtype.name, "shape": sample.shape}).encode()
        descriptor, temporary = mkstemp(dir=path.parent)
        try:
            file = os.fdopen(descriptor, "r+b", buffering=0)
            file.write(header.ljust(HEADER, b"\0"))
            entry = cls(file)
            file.truncate(entry._start + count * sample.nbytes)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        return entry

    def missing(self, rows: Rows) -> Rows:
        """Return those of `rows` that have not been written."""
        marks = np.frombuffer(os.pread(self._file.fileno(), self.count, HEADER), dtype=np.uint8)
        missing: Rows = rows[marks[rows] == 0]
        return missing

    def write(self, rows: Rows, values: NDArray[Any]) -> None:
        """Write some rows, then mark them."""
        self.add(rows, values)
        self.flush()

    def add(self, rows: Rows, values: NDArray[Any]) -> None:
        """Write some rows; mark them, and those added before, if the last marks are older than a second."""
        values = np.ascontiguousarray(values)
        with _errors_explained():
            for row, value in zip(rows, values, strict=True):
                self._write_at(value.tobytes(), self._start + int(row) * value.nbytes)
        self._unmarked += [int(row) for row in rows]
        if time.monotonic() - self._marked_at >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Mark all rows that were added, once they are on the disk."""
        rows, self._unmarked = self._unmarked, []
        with _errors_explained():
            os.fdatasync(self._file.fileno())
            for row in rows:
                self._write_at(b"\1", HEADER + row)
        self._marked_at = time.monotonic()

    def _write_at(self, content: bytes, position: int) -> None:
        if os.pwrite(self._file.fileno(), content, position) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def values(self) -> NDArray[Any]:
        """Return all rows as a memory map; missing rows are zeros."""
        return np.memmap(self._file, self.dtype, mode="r", offset=self._start, shape=(self.count, *self.shape))


@contextmanager
def _lock() -> Iterator[None]:
    """Let only one process at a time reserve space."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _errors_explained() -> Iterator[None]:
    """Raise errors of the file system as a `ValueError` that names the folder and the settings to change."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{cache_folder()}: cannot be used ({error.strerror}); set FEDRF_CACHE to another folder, or "
            "model.cache=memory"
        ) from error
