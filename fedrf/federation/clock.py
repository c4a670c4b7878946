"""The time that a run has taken, over all its restarts."""

from __future__ import annotations

import time

from fedrf.federation.state import State


class Clock:
    """Adds the time since this coordinator started to that of earlier ones."""

    def __init__(self, state: State) -> None:
        self._state, self._began, self._earlier_rounds = state, time.monotonic(), state.round_seconds

    @property
    def seconds(self) -> float:
        """Time in all."""
        return self._state.seconds + time.monotonic() - self._began

    def update_rounds(self, began: float) -> None:
        """Set the time in rounds, which began at this moment of the monotonic clock."""
        self._state.round_seconds = self._earlier_rounds + time.monotonic() - began

    def snapshot(self) -> bytes:
        """Return the state with the time up to now, as an archive."""
        now = time.monotonic()
        self._state.seconds, self._began = self._state.seconds + now - self._began, now
        return self._state.pack()
