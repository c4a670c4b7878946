"""Copy a folder from the cluster through the job server, which is the only part of a cluster that must be reachable."""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from cluster import archive
from cluster.server import POLL_SECONDS, JobServer, notify
from fedrf.experiment.display import size

DOWNLOAD_ATTEMPTS = 5


def fetch(server: JobServer, name: str, folder: str, destination: Path) -> str | None:
    """Copy a folder of the cluster to `destination`, completely or not at all.

    Parameters
    ----------
    server
        The cluster.
    name
        The name of the run or sweep.
    folder
        The folder on the cluster's head, quoted for sh.
    destination
        A folder that does not exist, or is empty.

    Returns
    -------
    str or None
        The folder's path on the cluster; None if there is no such folder.
    """
    job = f"{name}-fetch-{token_hex(3)}"
    program = shlex.join(["python", "-c", Path(archive.__file__).read_text()])
    server.retry(server.submit_job, entrypoint=f"exec {program} {folder}", submission_id=job)
    try:
        listing = _await_archive(server, job)
        if listing is None:
            return None
        stream = _PartStream(server, listing["node"], listing["parts"])
        with TemporaryDirectory(dir=destination.parent, prefix=f".{destination.name}-") as beside:
            complete = Path(beside, "complete")
            with tarfile.open(fileobj=stream, mode="r|", bufsize=2**20) as tar:
                tar.extractall(complete, filter="data")
            complete.rename(destination)
        notify(f"fetched {listing['archive']} ({size(stream.num_bytes)}) to {destination}")
        return str(listing["archive"])
    finally:
        with suppress(OSError, RuntimeError):
            server.stop_job(job)


def _await_archive(server: JobServer, job: str) -> dict[str, Any] | None:
    """Return the list of parts that the job prints, and its node; None if the folder does not exist."""
    while True:
        info = server.retry(server.get_job_info, job)
        log = server.retry(server.get_job_logs, job)
        for line in log.splitlines():
            if line.startswith('{"archive"'):
                return {**json.loads(line), "node": info.driver_node_id}
        if info.status.is_terminal():
            if info.driver_exit_code == archive.NO_FOLDER:
                return None
            raise ConnectionError(f"the job {job} failed: {log.strip().rpartition(chr(10))[2]}")
        time.sleep(POLL_SECONDS / 2)


class _PartStream(io.RawIOBase):
    """The parts of an archive, downloaded one after the other, as a readable file."""

    def __init__(self, server: JobServer, node: str, parts: list[tuple[str, str]]) -> None:
        self.server, self.node, self.parts = server, node, list(parts)
        self.num_bytes = 0
        self._unread = memoryview(b"")

    def readinto(self, buffer: Any, /) -> int:
        """Fill `buffer` with the next bytes, up to the end of the current part."""
        if not self._unread and self.parts:
            self._unread = memoryview(self._download(*self.parts.pop(0)))
        count = min(len(buffer), len(self._unread))
        buffer[:count], self._unread = self._unread[:count], self._unread[count:]
        return count

    def _download(self, name: str, checksum: str) -> bytes:
        for _ in range(DOWNLOAD_ATTEMPTS):
            data = self.server.retry(self.server.read_log_file, self.node, name)
            if hashlib.sha256(data).hexdigest() == checksum:
                self.num_bytes += len(data)
                return data
        raise ConnectionError(f"{name} was damaged in all of {DOWNLOAD_ATTEMPTS} downloads")
