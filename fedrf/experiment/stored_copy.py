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
from typing import Any
from uuid import uuid4

import yaml

from fedrf.errors import reason
from fedrf.experiment.results import RunFolder
from fedrf.federation.checkpoints import files_root
from fedrf.ownership import LEASE_SECONDS, RunTakenOverError
from fedrf.store import delete, read_whole, usable_folder_at, write_whole

RECORDS = ("metrics.jsonl", "run.log", "summary.json", "report.html")
COPIED = ("config.yaml", *RECORDS)
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

    def __enter__(self) -> StoredCopy:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        """Copy everything, and fetch the predictions; after that another driver may use the run."""
        if not self.is_elsewhere:
            return
        try:
            self.update(self.rows, at_once=True)
            _copy(self.root, self.folder.path, ("predictions.csv",))
            delete(self.root / OWNER)
        except (RunTakenOverError, OSError) as failure:
            if error is None:
                raise
            self.folder.log("failure", text=f"{self.root} lacks the end of the run: {reason(failure)}")

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
            write_whole(destination / name, read_whole(source / name))


def _owner(root: Path) -> dict[str, str] | None:
    """Return which driver uses a run in a store."""
    try:
        content: dict[str, str] = json.loads(read_whole(root / OWNER))
    except (FileNotFoundError, ValueError):
        return None
    return content


def _is_free(owner: dict[str, str]) -> bool:
    """Tell whether a run can be taken over; on this machine, the run directory says who uses it."""
    return owner["host"] == socket.gethostname() or time.time() - float(owner["time"]) > LEASE_SECONDS


def fetch_run(url: str, runs: Path) -> Path:
    """Copy the driver's files of a run from a store to a directory of the same name below `runs`.

    Its checkpoints are then read from the URL, also if they have been moved there from another store.
    """
    root = usable_folder_at(url.rstrip("/"))
    path, config = runs / root.name, _config_at(root, url)
    if (path / "config.yaml").exists() and RunFolder(path).plain_config() != config:
        raise ValueError(f"--resume: {path} holds another run; move it, or call from another folder")
    _check_free(root)
    path.mkdir(parents=True, exist_ok=True)
    with RunFolder(path).claim():
        _copy(root, path, COPIED)
        write_whole(path / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode())
    return path


def fetch_newer(folder: RunFolder, storage: str) -> None:
    """Copy the driver's files of a run from its store if another machine has continued the run since."""
    root = files_root(folder.path, storage)
    if root == folder.path or _has_log_of(folder, root):
        return
    _check_free(root)
    with RunFolder(folder.path).claim():
        _copy(root, folder.path, (*RECORDS, "predictions.csv"))


def _has_log_of(folder: RunFolder, root: Path) -> bool:
    """Tell whether the log of a run directory goes on from the log in a store, which only this directory wrote then."""
    log = folder.path / "run.log"
    try:
        return (log.read_bytes() if log.exists() else b"").startswith(read_whole(root / log.name))
    except FileNotFoundError:  # the store has no log
        return True


def _check_free(root: Path) -> None:
    """Raise a `ValueError` if a driver on another machine uses a run in a store."""
    owner = _owner(root)
    if owner and not _is_free(owner):
        raise ValueError(f"--resume: {root} is in use by a driver on {owner['host']}; wait for that run, or end it")


def _config_at(root: Path, url: str) -> dict[str, Any]:
    """Return the configuration of a run in a store, as it was written, but for the store itself."""
    try:
        content: dict[str, Any] = yaml.safe_load(read_whole(root / "config.yaml"))
        content["track"]["storage"] = url.rstrip("/").rpartition("/")[0]
    except FileNotFoundError:
        raise ValueError(f"--resume: {url} holds no run: it has no config.yaml") from None
    except (yaml.YAMLError, TypeError, KeyError):
        raise ValueError(f"--resume: {url}/config.yaml is damaged; start a new run") from None
    return content
