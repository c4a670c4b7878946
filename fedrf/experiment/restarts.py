"""How often something may be started again."""

from __future__ import annotations

import time
from collections import defaultdict, deque

WINDOW_SECONDS = 3600.0


class Restarts:
    """Counts restarts within the last hour: a long run survives many losses, a crash loop ends.

    Parameters
    ----------
    limit
        Allowed restarts of each client, or of all clients together, within an hour.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._times: defaultdict[str, deque[float]] = defaultdict(deque)

    def allow(self, name: str) -> bool:
        """Count a restart; tell whether it is within the limit."""
        times, now = self._times[name], time.monotonic()
        while times and now - times[0] > WINDOW_SECONDS:
            times.popleft()
        times.append(now)
        return len(times) <= self.limit
