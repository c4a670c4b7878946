"""An event loop in which time is simulated: when nothing is left to do, its clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from selectors import SelectSelector
from typing import Any


class StuckError(RuntimeError):
    """Nothing will ever happen again, although something is waited for."""


class _Jumps(SelectSelector):
    """Instead of waiting for a timer, sets the clock to it.

    Attributes
    ----------
    now
        The simulated time in seconds.
    until
        The moment of the machine's monotonic clock at which `stop` is called.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__()
        self.now, self.until, self._stop = 0.0, math.inf, stop

    def select(self, timeout: float | None = None) -> Any:
        """Return what is ready; `timeout` is the time to the next timer, 0 if something is to be done now."""
        if time.monotonic() >= self.until:
            self._stop()
            return super().select(0)
        if timeout is None:
            raise StuckError("the simulation has no next event")
        self.now += timeout
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop with simulated time, for programs that wait for no processes or sockets."""

    def __init__(self) -> None:
        self._jumps = _Jumps(self.stop)
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []
        self._number = count()
        super().__init__(self._jumps)

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._jumps.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do work that is meant for another thread at once, in no simulated time."""
        result = self.create_future()
        try:
            result.set_result(func(*args))
        except Exception as error:
            result.set_exception(error)
        return result

    def at(self, when: float, order: int, action: Callable[[], None]) -> None:
        """Call `action` at a moment; what is due at the same moment runs by `order`, then as it was added."""
        heappush(self._events, (when, order, next(self._number), action))
        self.call_at(when, self._next_event)

    def _next_event(self) -> None:
        # As many timers as events are due at each moment, so that each timer can take the first event of all.
        heappop(self._events)[-1]()

    def run_for(self, seconds: float) -> None:
        """Run until `stop` is called, at most so many seconds of the machine's time."""
        self._jumps.until = time.monotonic() + seconds
        try:
            self.run_forever()
        finally:
            self._jumps.until = math.inf
