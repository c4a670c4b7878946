"""Which processes are clients, and when the coordinator last heard from each of them.

The driver starts a client again with a higher attempt, and says so before it does. Calls with another attempt come from
a process that was replaced, or from a stranger. Clients show that they are alive several times before the deadline,
also while they compute or wait (`fedrf.federation.heartbeat`), so a client that is silent for longer is frozen,
unreachable or gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

STARTUP_FACTOR = 10  # a process that starts may be silent for longer: it imports and connects first
LONGEST_STEP = 1.0  # seconds that a look at the clock counts at most: the coordinator may have been frozen itself
BEATS = 10  # signs of life within the deadline
LONGEST_PAUSE = 5.0  # between two signs of life


class SupersededError(RuntimeError):
    """The calling process is no longer the client that it was started as."""


class Liveness:
    """Attempts and silence of all clients.

    Parameters
    ----------
    clients
        Their names.
    deadline
        Seconds of silence after which a client counts as lost.

    Attributes
    ----------
    attempts
        The attempt of each client that the driver has started last; None for a client that has no process.
    """

    def __init__(self, clients: Iterable[str], deadline: float) -> None:
        self.deadline = deadline
        self.attempts: dict[str, int | None] = dict.fromkeys(clients)
        self._heard = dict.fromkeys(self.attempts, 0.0)
        self._alive_since = dict.fromkeys(self.attempts, 0.0)
        self._starting = set(self.attempts)
        self._clock, self._looked = 0.0, time.monotonic()

    def admit(self, client: str, attempt: int) -> None:
        """Expect calls of a client's new process; those of its older ones are no longer answered."""
        self.attempts[client] = attempt
        self._heard[client] = self._alive_since[client] = self._now()
        self._starting.add(client)

    def exclude(self, client: str) -> None:
        """Answer no call of a client until the driver has started it again: its process is being ended."""
        self.attempts[client] = None

    def hear(self, client: str, attempt: int) -> None:
        """Note a sign of life; raise `SupersededError` if it is of another attempt."""
        if attempt != self.attempts[client]:
            raise SupersededError(f"{client}: attempt {attempt} is not the current one, {self.attempts[client]}")
        now = self._now()
        if now - self._heard[client] > self.deadline / 2:
            self._alive_since[client] = now
        self._heard[client] = now
        self._starting.discard(client)

    def is_late(self, client: str) -> bool:
        """Tell whether a client that does not arrive is merely late: it has been alive for the whole deadline."""
        now = self._now()
        return now - self._heard[client] <= self.deadline / 2 and now - self._alive_since[client] >= self.deadline

    def silent(self) -> dict[str, float]:
        """Return the clients that have been silent for longer than allowed, and for how many seconds."""
        now = self._now()
        silence = {name: now - heard for name, heard in self._heard.items()}
        factors = {name: STARTUP_FACTOR if name in self._starting else 1 for name in self.attempts}
        return {name: seconds for name, seconds in silence.items() if seconds > factors[name] * self.deadline}

    def _now(self) -> float:
        """Return the time for which the coordinator has run: while it is frozen, it hears nobody."""
        now = time.monotonic()
        self._clock += min(now - self._looked, LONGEST_STEP)
        self._looked = now
        return self._clock


class AlwaysAlive(Liveness):
    """Clients that cannot be silent, because they do not run by themselves: who does not arrive is late."""

    def is_late(self, client: str) -> bool:
        """Return true."""
        return True

    def silent(self) -> dict[str, float]:
        """Return no client."""
        return {}


def pause_between_beats(deadline: float) -> float:
    """Return the seconds between two signs of life."""
    return min(LONGEST_PAUSE, deadline / BEATS)
