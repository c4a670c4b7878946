"""The files of checkpoints, written atomically; the last two versions are kept.

`checkpoints/<client>/<version>.ckpt` are the clients' Lightning checkpoints. `checkpoints/coordinator/<version>.pickle`
is the coordinator's state, with the version of each client's file that belongs to it. The coordinator writes last: a
version without its file is not valid.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedrf.files import write_atomically

KEPT_VERSIONS = 2
FORMAT = 3  # of the files; a client's checkpoint refers to samples by their positions


class RunTakenOverError(RuntimeError):
    """Another process has continued this run."""


class ClientFiles:
    """The checkpoints of one client."""

    def __init__(self, run: Path, client: str) -> None:
        self.folder = run / "checkpoints" / client

    def path(self, version: int) -> Path:
        """Return the file of one version."""
        return self.folder / f"{version:06d}.ckpt"

    @property
    def final(self) -> Path:
        """The weights at the end of the run."""
        return self.folder / "final.safetensors"

    def newest(self) -> Path | None:
        """Return the newest file, whether or not the other clients have saved the same version."""
        return max(self.folder.glob("[0-9]*.ckpt"), default=None)

    def prune(self, oldest_needed: int) -> None:
        """Delete versions that no valid version of the coordinator refers to."""
        for path in self.folder.glob("[0-9]*.ckpt"):
            if int(path.stem) < oldest_needed:
                path.unlink()


def keep_final_weights(run: Path, client: str) -> None:
    """Delete all checkpoints of a finished run except the final weights of one client."""
    for path in (run / "checkpoints").glob("*/*"):
        if path != ClientFiles(run, client).final:
            path.unlink()


class CoordinatorFiles:
    """The checkpoints of the coordinator, each of which makes a version valid."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "checkpoints" / "coordinator"
        self.token = ""

    @classmethod
    def claim(cls, run: Path) -> CoordinatorFiles:
        """Take over a run: processes that wrote to it before, such as actors of a killed driver, no longer can."""
        files = cls(run)
        files.token = uuid4().hex
        write_atomically(files.folder / "owner", lambda path: path.write_text(files.token))
        return files

    def check_owner(self) -> None:
        """Raise if another process has taken over the run."""
        if (self.folder / "owner").read_text() != self.token:
            raise RunTakenOverError(f"{self.run} has been taken over by another process")

    def _valid(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.pickle"))

    @property
    def newest(self) -> int:
        """The newest valid version; 0 for none."""
        files = self._valid()
        return int(files[-1].stem) if files else 0

    def load(self) -> tuple[Any, dict[str, int]]:
        """Return the newest valid state, and the version of each client's file that belongs to it."""
        path = self._valid()[-1]
        content = pickle.loads(path.read_bytes())
        if len(content) != 3 or content[0] != FORMAT:
            raise ValueError(f"{path} was written by another version of fedrf and cannot be resumed; start a new run")
        _, state, saved = content
        return pickle.loads(state), saved

    def save(self, version: int, state: bytes, saved: dict[str, int]) -> None:
        """Make a version valid, and delete all but the last two."""
        self.check_owner()
        content = pickle.dumps((FORMAT, state, saved))
        write_atomically(self.folder / f"{version:06d}.pickle", lambda path: path.write_bytes(content))
        for path in self._valid()[:-KEPT_VERSIONS]:
            path.unlink()
