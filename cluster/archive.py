"""Offer a folder for download as parts of a tar file, until the job is stopped; sent to the cluster as program text.

Logs are the only files that Ray's job server serves, so the parts are written beside the log of the job. They are small
so that a broken connection costs one part, not the whole folder. The program uses only the standard library, because a
cluster may have another version of fedrf, or none.
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
KEEP_SECONDS = 6 * 3600  # in case the job is never stopped
NO_FOLDER = 3  # exit code


class Parts(io.RawIOBase):
    """A writable file that is split into parts; `written` has their names and checksums."""

    def __init__(self, stem: Path) -> None:
        self.stem = stem
        self.written: list[tuple[str, str]] = []
        self._buffer = bytearray()

    def write(self, data: Any, /) -> int:
        """Append data; write each part that is complete."""
        self._buffer += data
        while len(self._buffer) >= PART_BYTES:
            self._write_part()
        return len(data)

    def finish(self) -> None:
        """Write the last part."""
        self._write_part()

    def remove(self) -> None:
        """Delete all parts."""
        for path in self.stem.parent.glob(f"{self.stem.name}.*.part"):
            path.unlink()

    def _write_part(self) -> None:
        part = self._buffer[:PART_BYTES]
        path = self.stem.with_name(f"{self.stem.name}.{len(self.written):05}.part")
        self.written.append((path.name, hashlib.sha256(part).hexdigest()))
        path.write_bytes(part)
        del self._buffer[:PART_BYTES]


def main(folder: Path) -> None:
    """Write the parts, print a line of JSON that lists them, and wait."""
    if not folder.is_dir():
        print(f"no such folder: {folder}")
        sys.exit(NO_FOLDER)
    log = Path(os.readlink("/proc/self/fd/1"))
    parts = Parts(log.with_suffix(""))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        with tarfile.open(fileobj=parts, mode="w|", bufsize=2**20) as archive:
            archive.add(folder, ".", filter=lambda entry: entry if entry.isreg() or entry.isdir() else None)
        parts.finish()
        print("\n" + json.dumps({"archive": str(folder.resolve()), "parts": parts.written}), flush=True)
        time.sleep(KEEP_SECONDS)
    finally:
        parts.remove()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
