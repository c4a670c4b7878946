"""Brings a folder from the cluster, through the job server: nothing else of a cluster need be reachable."""

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

from cluster import parcel
from cluster.server import PAUSE_SECONDS, JobServer, say
from fedrf.experiment.display import size

TRIALS = 5


def fetch(server: JobServer, name: str, folder: str, destination: Path) -> str | None:
    """Copy a folder of the cluster to `destination`, whole or not at all.

    Parameters
    ----------
    server
        The cluster.
    name
        Whose folder it is.
    folder
        The folder on the cluster's head, as a word of sh.
    destination
        A folder that does not exist, or is empty.

    Returns
    -------
    str or None
        The folder's path on the cluster; None if there is no such folder.
    """
    job = f"{name}-fetch-{token_hex(3)}"
    program = shlex.join(["python", "-c", Path(parcel.__file__).read_text()])
    server.patiently(server.submit_job, entrypoint=f"exec {program} {folder}", submission_id=job)
    try:
        found = _await_parcel(server, job)
        if found is None:
            return None
        stream = _Stream(server, found["node"], found["parts"])
        with TemporaryDirectory(dir=destination.parent, prefix=f".{destination.name}-") as beside:
            whole = Path(beside, "whole")
            with tarfile.open(fileobj=stream, mode="r|", bufsize=2**20) as archive:
                archive.extractall(whole, filter="data")
            whole.rename(destination)
        say(f"fetched {found['parcel']} ({size(stream.taken)}) to {destination}")
        return str(found["parcel"])
    finally:
        with suppress(OSError, RuntimeError):
            server.stop_job(job)


def _await_parcel(server: JobServer, job: str) -> dict[str, Any] | None:
    while True:
        info = server.patiently(server.get_job_info, job)
        log = server.patiently(server.get_job_logs, job)
        for line in log.splitlines():
            if line.startswith('{"parcel"'):
                return {**json.loads(line), "node": info.driver_node_id}
        if info.status.is_terminal():
            if info.driver_exit_code == parcel.NOTHING:
                return None
            raise ConnectionError(f"the job {job} failed: {log.strip().rpartition(chr(10))[2]}")
        time.sleep(PAUSE_SECONDS / 2)


class _Stream(io.RawIOBase):
    """The parts, one after the other, as a file to read from."""

    def __init__(self, server: JobServer, node: str, parts: list[tuple[str, str]]) -> None:
        self.server, self.node, self.parts = server, node, list(parts)
        self.taken = 0
        self._left = memoryview(b"")

    def readinto(self, target: Any, /) -> int:
        """Fill `target` with what comes next, as far as the part at hand goes."""
        if not self._left and self.parts:
            self._left = memoryview(self._download(*self.parts.pop(0)))
        count = min(len(target), len(self._left))
        target[:count], self._left = self._left[:count], self._left[count:]
        return count

    def _download(self, name: str, checksum: str) -> bytes:
        for _ in range(TRIALS):
            data = self.server.patiently(self.server.read_log_file, self.node, name)
            if hashlib.sha256(data).hexdigest() == checksum:
                self.taken += len(data)
                return data
        raise ConnectionError(f"{name} arrived damaged {TRIALS} times")
