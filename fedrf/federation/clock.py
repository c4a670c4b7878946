"""The time that a run has taken, over all its restarts."""

from __future__ import annotations

from collections.abc import Callable

from fedrf.federation.state import State


class Clock:
    """Adds the time since this coordinator started to that of earlier ones.

    Parameters
    ----------
    state
        The coordinator's state, which keeps the time.
    now
        Tells the time: of the machine, or simulated.
    """

    def __init__(self, state: State, now: Callable[[], float]) -> None:
        self.now = now
        self._state, self._began = state, now()
        self._earlier, self._earlier_rounds = state.seconds, state.round_seconds

    @property
    def seconds(self) -> float:
        """Time in all."""
        return self._earlier + self.now() - self._began

    def update_rounds(self, began: float) -> None:
        """Set the time in rounds, which began at this moment."""
        self._state.round_seconds = self._earlier_rounds + self.now() - began

    def snapshot(self) -> bytes:
        """Return the state with the time up to now, as an archive."""
        self._state.seconds = self.seconds
        return self._state.pack()
