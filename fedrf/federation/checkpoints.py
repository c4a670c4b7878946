"""The files of checkpoints, written atomically; the last two versions are kept.

`checkpoints/<client>/<version>.safetensors` are the clients' checkpoints; in the folder `coordinator`, they are the
coordinator's state, with the version of each client's file that belongs to it. The coordinator writes last: a version
without its file is not valid. All are archives (`fedrf.archive`) with a digest; reading one runs no code. If a file of
the newest version is damaged, the version before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrf.archive import DamagedError, pack, unpack
from fedrf.ownership import Fence
from fedrf.store import delete, files_in, folder_at, read_whole, write_whole

KEPT_VERSIONS = 2
FORMAT = 4  # of the files; a client's checkpoint refers to samples by their positions
VERSIONS = "[0-9]*.safetensors"


def files_root(run: Path, storage: str) -> Path:
    """Return the folder with the checkpoints of a run: its directory, or one of the same name in `track.storage`."""
    return folder_at(storage) / run.name if storage else run


class ClientFiles:
    """The checkpoints of one client."""

    def __init__(self, run: Path, client: str) -> None:
        self.run, self.client = run, client
        self.folder = run / "checkpoints" / client

    def name(self, version: int) -> str:
        """Return the name of the file of one version in the run directory."""
        return f"checkpoints/{self.client}/{version:06d}.safetensors"

    def path(self, version: int) -> Path:
        """Return the file of one version."""
        return self.run / self.name(version)

    @property
    def name_of_final(self) -> str:
        """The name of the file with the weights at the end of the run."""
        return f"checkpoints/{self.client}/final.safetensors"

    @property
    def final(self) -> Path:
        """The weights at the end of the run."""
        return self.run / self.name_of_final

    def version_of(self, name: str) -> int | None:
        """Return the version whose file has a name; None for other names."""
        digits = name.removeprefix(f"checkpoints/{self.client}/").removesuffix(".safetensors")
        version = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else 0
        return version if name == self.name(version) else None

    def newest(self) -> int | None:
        """Return the newest version with an intact file, whether or not the other clients have saved it."""
        for path in reversed(files_in(self.folder, VERSIONS)):
            if not damage(path):
                return int(path.stem)
        return None

    def drop_after(self, version: int) -> None:
        """Delete files that are newer than the version that all clients go back to."""
        for path in files_in(self.folder, VERSIONS):
            if int(path.stem) > version:
                delete(path)

    def prune(self, oldest_needed: int) -> None:
        """Delete versions that no valid version of the coordinator refers to."""
        for path in files_in(self.folder, VERSIONS):
            if int(path.stem) < oldest_needed:
                delete(path)


def damage(path: Path) -> str:
    """Return why a checkpoint cannot be used; empty if it is intact."""
    try:
        unpack(read_whole(path))
    except (OSError, DamagedError) as error:
        return f"{path} is damaged: {error}" if isinstance(error, DamagedError) else f"{path} cannot be read: {error}"
    return ""


def keep_final_weights(run: Path, client: str) -> None:
    """Delete all checkpoints of a finished run except the final weights of one client."""
    for path in files_in(run / "checkpoints", "*/*"):
        if path != ClientFiles(run, client).final:
            delete(path)


class Version(NamedTuple):
    """A valid version.

    Attributes
    ----------
    number
        The number of the version.
    state
        The coordinator's state, as `State.pack` returned it.
    saved
        The version of each client's file that belongs to it.
    skipped
        Why newer versions are not used.
    """

    number: int
    state: bytes
    saved: dict[str, int]
    skipped: tuple[str, ...] = ()


class CoordinatorFiles:
    """The checkpoints of the coordinator, each of which makes a version valid.

    Parameters
    ----------
    run
        The run directory.
    fence
        Allows writing; None for reading alone.
    """

    def __init__(self, run: Path, fence: Fence | None = None) -> None:
        self.run, self.fence = run, fence
        self.folder = run / "checkpoints" / "coordinator"

    def check_owner(self) -> None:
        """Raise if another process has taken over the run."""
        assert self.fence is not None
        self.fence.check()

    def _valid(self) -> list[Path]:
        return files_in(self.folder, VERSIONS)

    @property
    def newest(self) -> int:
        """The newest valid version; 0 for none."""
        files = self._valid()
        return int(files[-1].stem) if files else 0

    def load(self) -> Version | None:
        """Return the newest version whose files are all intact; None if there has been no version yet.

        Raises
        ------
        ValueError
            If there are versions, and a file of each of them is damaged or of another format.
        """
        skipped: list[str] = []
        for path in reversed(self._valid()):
            reasons = list(self._reasons_against(path))
            if not reasons:
                _, state, saved = unpack(read_whole(path))
                return Version(int(path.stem), state.tobytes(), saved, tuple(skipped))
            skipped.append(reasons[0])
        old = next(iter(files_in(self.folder, "[0-9]*.pickle")), None)
        if old is not None:
            skipped.append(f"{old} was written by another version of fedrf")
        if skipped:
            raise ValueError(f"no checkpoint can be resumed: {'; '.join(skipped)}; start a new run")
        return None

    def _reasons_against(self, path: Path) -> Iterator[str]:
        """Yield why a version cannot be used."""
        try:
            content = unpack(read_whole(path))
        except (OSError, DamagedError):
            yield damage(path)
            return
        if type(content) is not tuple or len(content) != 3 or content[0] != FORMAT:
            yield f"{path} was written by another version of fedrf"
            return
        for client, version in content[2].items():
            if reason := damage(ClientFiles(self.run, client).path(version)):
                yield reason

    def save(self, version: int, state: bytes, saved: dict[str, int]) -> None:
        """Make a version valid, and delete all but the last two."""
        self.check_owner()
        content = pack((FORMAT, np.frombuffer(state, np.uint8), saved))
        write_whole(self.folder / f"{version:06d}.safetensors", content)
        for path in self._valid()[:-KEPT_VERSIONS]:
            delete(path)
