"""What the driver keeps in `track.storage`: a copy of its own files, from which another machine can continue the run.

Checkpoints, weights and predictions are written there by the processes that have them, and are not copied.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from fedrf.experiment.results import RunFolder
from fedrf.files import folder_at, write_whole
from fedrf.ownership import LEASE_SECONDS, RunTakenOverError

COPIED = ("config.yaml", "metrics.jsonl", "run.log", "summary.json", "report.html")
OWNER = "driver.json"
UPDATE_SECONDS = 10.0


class StoredCopy:
    """The copy of a run directory in its store; does nothing without `track.storage`.

    Parameters
    ----------
    folder
        The run directory.
    root
        The folder of the run in the store; the run directory itself if there is no store.

    Attributes
    ----------
    rows
        How many figures the copy has.
    """

    def __init__(self, folder: RunFolder, root: Path) -> None:
        self.folder, self.root, self.rows = folder, root, 0
        self.is_elsewhere = root != folder.path
        self._token, self._updated = uuid4().hex, float("-inf")

    def update(self, rows: int, at_once: bool = False) -> None:
        """Copy the files of the driver if it is time; raise `RunTakenOverError` if another driver has taken over."""
        if self.is_elsewhere and (at_once or time.monotonic() - self._updated >= UPDATE_SECONDS):
            self._claim(is_first=self._updated < 0)
            _copy(self.folder.path, self.root, COPIED)
            self.rows, self._updated = rows, time.monotonic()

    def close(self, rows: int) -> None:
        """Copy everything, and fetch the predictions."""
        if self.is_elsewhere:
            self.update(rows, at_once=True)
            _copy(self.root, self.folder.path, ("predictions.csv",))
            (self.root / OWNER).unlink(missing_ok=True)

    def _claim(self, is_first: bool) -> None:
        """Write who continues the run, unless another driver does."""
        owner = _owner(self.root)
        if owner and owner["token"] != self._token and not (is_first and _is_free(owner)):
            raise RunTakenOverError(f"{self.root} is used by a driver on {owner['host']}")
        identity = {"token": self._token, "host": socket.gethostname(), "time": time.time()}
        write_whole(self.root / OWNER, json.dumps(identity).encode())


def _copy(source: Path, destination: Path, names: Iterable[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            write_whole(destination / name, (source / name).read_bytes())


def _owner(root: Path) -> dict[str, str] | None:
    """Return which driver uses a run in a store."""
    try:
        content: dict[str, str] = json.loads((root / OWNER).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return content


def _is_free(owner: dict[str, str]) -> bool:
    """Tell whether a run can be taken over; on this machine, the run directory says who uses it."""
    return owner["host"] == socket.gethostname() or time.time() - float(owner["time"]) > LEASE_SECONDS


def fetch_run(url: str, runs: Path) -> Path:
    """Copy the driver's files of a run from a store to a directory of the same name below `runs`."""
    root = folder_at(url.rstrip("/"))
    if not (root / "config.yaml").exists():
        raise ValueError(f"--resume: {url} holds no run: it has no config.yaml")
    owner = _owner(root)
    if owner and not _is_free(owner):
        raise ValueError(f"--resume: {url} is in use by a driver on {owner['host']}; wait for that run, or end it")
    path = runs / root.name
    path.mkdir(parents=True, exist_ok=True)
    with RunFolder(path).claim():
        _copy(root, path, COPIED)
    return path
