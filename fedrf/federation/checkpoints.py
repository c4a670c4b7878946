"""Where a run keeps its checkpoints, and how they are written: whole or not at all, two generations of each.

`checkpoints/<client>/<generation>.ckpt` are the clients' Lightning checkpoints, `checkpoints/coordinator/
<generation>.pickle` the coordinator's state with, for each client, which of its files belongs to it. The coordinator
writes last: a generation without its file does not count.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedrf.files import write_atomically

GENERATIONS = 2


class RunTakenOverError(RuntimeError):
    """Somebody else has continued this run."""


class ClientFiles:
    """The checkpoints of one client."""

    def __init__(self, run: Path, client: str) -> None:
        self.folder = run / "checkpoints" / client

    def path(self, generation: int) -> Path:
        """Return where the checkpoint of one generation is."""
        return self.folder / f"{generation:06d}.ckpt"

    @property
    def final(self) -> Path:
        """The weights at the end of the run."""
        return self.folder / "final.safetensors"

    def newest(self) -> Path | None:
        """Return the newest checkpoint, whether the others have saved the same generation or not."""
        return max(self.folder.glob("[0-9]*.ckpt"), default=None)

    def prune(self, oldest_needed: int) -> None:
        """Delete generations that nothing can go back to."""
        for path in self.folder.glob("[0-9]*.ckpt"):
            if int(path.stem) < oldest_needed:
                path.unlink()


def keep_final_weights(run: Path, client: str) -> None:
    """Delete all checkpoints of a run that has come to its end, but for one client's weights."""
    for path in (run / "checkpoints").glob("*/*"):
        if path != ClientFiles(run, client).final:
            path.unlink()


class CoordinatorFiles:
    """The coordinator's own checkpoints, each of which makes a generation count."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "checkpoints" / "coordinator"
        self.token = ""

    @classmethod
    def claim(cls, run: Path) -> CoordinatorFiles:
        """Take a run over: whoever wrote to it before, say the actors of a driver that was killed, no longer can."""
        files = cls(run)
        files.token = uuid4().hex
        write_atomically(files.folder / "owner", lambda path: path.write_text(files.token))
        return files

    def check_owner(self) -> None:
        """Raise if the run has been taken over."""
        if (self.folder / "owner").read_text() != self.token:
            raise RunTakenOverError(f"{self.run} has been taken over by another process")

    def _committed(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.pickle"))

    @property
    def newest(self) -> int:
        """The newest generation that counts; 0 for none."""
        files = self._committed()
        return int(files[-1].stem) if files else 0

    def load(self) -> tuple[Any, dict[str, int]]:
        """Return the newest state that counts, and the generation of each client's file that belongs to it."""
        picture, saved = pickle.loads(self._committed()[-1].read_bytes())
        return pickle.loads(picture), saved

    def save(self, generation: int, picture: bytes, saved: dict[str, int]) -> None:
        """Make a generation count, and forget those before the last two."""
        self.check_owner()
        content = pickle.dumps((picture, saved))
        write_atomically(self.folder / f"{generation:06d}.pickle", lambda path: path.write_bytes(content))
        for path in self._committed()[:-GENERATIONS]:
            path.unlink()
