"""When everybody saves: a generation begins with a picture of the coordinator, and counts when all have saved."""

from __future__ import annotations

import pickle
import time
from typing import Any

from fedrf.federation.checkpoints import GENERATIONS, CoordinatorFiles


class Generations:
    """The coordinator's side of checkpoints; at most one generation is in the making."""

    def __init__(self, files: CoordinatorFiles, pause: float, number: int, saved: dict[str, int]) -> None:
        self.files, self.pause, self.number = files, pause, number
        self.saved = saved
        self._kept = [dict(saved)] if saved else []
        self._picture: bytes | None = None
        self._began = time.monotonic()

    def begin(self, state: Any, force: bool = False) -> None:
        """Begin a generation if it is time: from now on replies carry its number, and clients save when they see it."""
        is_due = self._picture is None and time.monotonic() - self._began >= self.pause
        if force or is_due:
            self.files.check_owner()
            self.number += 1
            self._picture = pickle.dumps(state)
            self._began = time.monotonic()

    def note(self, client: str, generation: int) -> None:
        """Note that a client has saved."""
        self.saved[client] = generation

    def commit_if_complete(self, expected: set[str]) -> None:
        """Let the generation count if all expected clients have saved it; others keep what they saved before."""
        if self._picture is not None and all(self.saved.get(name) == self.number for name in expected):
            self.files.save(self.number, self._picture, self.saved)
            self._kept = [*self._kept, dict(self.saved)][-GENERATIONS:]
            self._picture = None

    def oldest_needed(self, client: str) -> int:
        """Return the oldest file of a client that a generation which counts could ask for."""
        return min((saved.get(client, 0) for saved in self._kept), default=0)

    def abandon(self) -> None:
        """Give up the generation in the making: somebody who had to save is gone."""
        self._picture = None
