"""Checkpoint versions: one begins with a snapshot of the coordinator, and is valid when all clients have saved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Set

from fedrf.federation.checkpoints import KEPT_VERSIONS, CoordinatorFiles


class CheckpointVersions:
    """The coordinator's side of checkpoints; at most one version is incomplete.

    Parameters
    ----------
    files
        The coordinator's files.
    pause
        Least number of seconds between the beginnings of two versions.
    number
        The newest version.
    saved
        The version of each client's newest file.
    snapshot
        Returns the state to save, as bytes.

    Attributes
    ----------
    changed
        Where sources skip rounds: clients that have called since they saved. The newest file of another one is part of
        the versions that begin until it calls again.
    """

    def __init__(
        self, files: CoordinatorFiles, pause: float, number: int, saved: dict[str, int], snapshot: Callable[[], bytes]
    ) -> None:
        self.files, self.pause, self.number, self.saved = files, pause, number, saved
        self._snapshot = snapshot
        self._kept = [dict(saved)] if saved else []
        self._content: bytes | None = None
        self._began, self._writing = time.monotonic(), asyncio.Lock()
        self.changed: set[str] = set()
        self._savers: Set[str] | None = None

    def begin(self, force: bool = False, savers: Set[str] | None = None) -> None:
        """Begin a version if it is time: replies carry its number from now on, and clients save when they see it.

        Parameters
        ----------
        force
            Whether it is time, whenever the last version began.
        savers
            The clients that save; by default all that are expected to.
        """
        is_due = self._content is None and time.monotonic() - self._began >= self.pause
        if force or is_due:
            self.files.check_owner()
            self.number += 1
            self._content = self._snapshot()
            self._savers = None if savers is None else frozenset(savers)
            self._began = time.monotonic()

    def note_saved(self, client: str, version: int) -> None:
        """Record that a client has saved."""
        self.saved[client] = version
        self.changed.discard(client)

    async def commit_if_complete(self, expected: set[str]) -> None:
        """Make the version valid if all expected clients have saved it, and return when it is written.

        Other calls are answered meanwhile, because a store can take long. A client that has left keeps its older file,
        from which it is started again.
        """
        if not self._is_complete(expected):
            return
        async with self._writing:
            if self._content is not None and self._is_complete(expected):  # otherwise another call has written it
                number, saved = self.number, dict(self.saved)
                await asyncio.to_thread(self.files.save, number, self._content, saved)
                self._kept = [*self._kept, saved][-KEPT_VERSIONS:]
                if self.number == number:  # otherwise the next version has begun
                    self._content = None

    def _is_complete(self, expected: set[str]) -> bool:
        savers = expected if self._savers is None else expected & self._savers
        return self._content is not None and all(self.saved.get(name) == self.number for name in savers)

    def oldest_needed(self, client: str) -> int:
        """Return the oldest file of a client that a valid version refers to."""
        return min((saved.get(client, 0) for saved in self._kept), default=0)
