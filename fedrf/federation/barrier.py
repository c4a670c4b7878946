"""Calls that are answered together, when all clients that are expected have made them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Key = tuple[Any, ...]


class Meeting:
    """One of them: what each client brought, and the result for all."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Meetings:
    """All that are open.

    Parameters
    ----------
    expected
        Returns who must come.
    close
        Makes the result of a meeting, once, from what everybody brought.
    leave
        Is told of a client that did not come in time; it is no longer expected afterwards.
    """

    def __init__(
        self,
        expected: Callable[[], set[str]],
        close: Callable[[Key, dict[str, Any]], Any],
        leave: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._expected, self._close, self._leave = expected, close, leave
        self._open: dict[Key, Meeting] = {}

    async def attend(self, key: Key, sender: str, entry: Any, deadline: float | None) -> Any:
        """Bring something to a meeting and wait for its result; without a deadline, for as long as it takes."""
        meeting = self._open.setdefault(key, Meeting())
        meeting.entries[sender] = entry
        self.recheck()
        while not (await asyncio.wait([meeting.result], timeout=deadline))[0]:
            for name in sorted(self._expected() - meeting.entries.keys()):
                await self._leave(name, f"silent for {deadline:g} s")
        return meeting.result.result()

    def dissolve(self, key: Key) -> None:
        """Let all go who wait in a meeting, without a result."""
        meeting = self._open.pop(key, None)
        if meeting is not None:
            meeting.result.set_result(None)

    def recheck(self) -> None:
        """Close every meeting that waits for nobody any more."""
        for key, meeting in list(self._open.items()):
            if self._expected() <= meeting.entries.keys():
                del self._open[key]
                try:
                    meeting.result.set_result(self._close(key, meeting.entries))
                except Exception as error:
                    meeting.result.set_exception(error)  # to all who met, or the others would wait for ever
