"""Runs on the cluster, given to a job as text: lays a folder out as parts of a tar file, until the job is stopped.

Logs are the only files that Ray's job server hands out, so the parts lie beside the log of the job. Parts, because a
connection that breaks shall not cost a whole gigabyte. Only the standard library: little is known about a cluster.
"""

import hashlib
import io
import json
import os
import signal
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

PART_BYTES = 32 * 2**20
KEPT_SECONDS = 6 * 3600  # should nobody stop the job
NOTHING = 3  # exit code: there is no such folder


class Parts(io.RawIOBase):
    """A file to write to that is cut into parts; `done` has their names and checksums."""

    def __init__(self, stem: Path) -> None:
        self.stem = stem
        self.done: list[tuple[str, str]] = []
        self._buffer = bytearray()

    def write(self, data: Any, /) -> int:
        """Take what comes next."""
        self._buffer += data
        while len(self._buffer) >= PART_BYTES:
            self._cut()
        return len(data)

    def finish(self) -> None:
        """Write the last part."""
        self._cut()

    def remove(self) -> None:
        """Delete all parts."""
        for path in self.stem.parent.glob(f"{self.stem.name}.*.part"):
            path.unlink()

    def _cut(self) -> None:
        part = self._buffer[:PART_BYTES]
        path = self.stem.with_name(f"{self.stem.name}.{len(self.done):05}.part")
        self.done.append((path.name, hashlib.sha256(part).hexdigest()))
        path.write_bytes(part)
        del self._buffer[:PART_BYTES]


def main(folder: Path) -> None:
    """Lay the folder out, print a line of JSON about it, and wait."""
    if not folder.is_dir():
        print(f"no such folder: {folder}")
        sys.exit(NOTHING)
    log = Path(os.readlink("/proc/self/fd/1"))
    parts = Parts(log.with_suffix(""))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        with tarfile.open(fileobj=parts, mode="w|", bufsize=2**20) as archive:
            archive.add(folder, ".", filter=lambda entry: entry if entry.isreg() or entry.isdir() else None)
        parts.finish()
        print("\n" + json.dumps({"parcel": str(folder.resolve()), "parts": parts.done}), flush=True)
        time.sleep(KEPT_SECONDS)
    finally:
        parts.remove()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
