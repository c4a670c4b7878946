"""A barrier: calls that are answered together, when all expected clients have made them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Key = tuple[int, ...]


class _Waiting:
    """What each client has brought to one use of the barrier, and the result for all."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Barrier:
    """A barrier that is used many times, each time with another key.

    Parameters
    ----------
    expected
        Returns the clients that must arrive.
    close
        Computes the result of one use, once, from the entries of all clients.
    leave
        Is told about a client that did not arrive in time, which is then no longer expected.
    """

    def __init__(
        self,
        expected: Callable[[], set[str]],
        close: Callable[[Key, dict[str, Any]], Any],
        leave: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._expected, self._close, self._leave = expected, close, leave
        self._open: dict[Key, _Waiting] = {}

    async def wait(self, key: Key, sender: str, entry: Any, deadline: float | None) -> Any:
        """Add an entry and wait for the result; without a deadline, as long as it takes."""
        waiting = self._open.setdefault(key, _Waiting())
        waiting.entries[sender] = entry
        self.recheck()
        while not (await asyncio.wait([waiting.result], timeout=deadline))[0]:
            for name in sorted(self._expected() - waiting.entries.keys()):
                await self._leave(name, f"silent for {deadline:g} s")
        return waiting.result.result()

    def release(self) -> None:
        """End all waiting calls without a result."""
        for waiting in self._open.values():
            waiting.result.set_result(None)
        self._open.clear()

    def recheck(self) -> None:
        """Close every use for which all expected clients have arrived."""
        for key, waiting in list(self._open.items()):
            if self._expected() <= waiting.entries.keys():
                del self._open[key]
                try:
                    waiting.result.set_result(self._close(key, waiting.entries))
                except Exception as error:
                    waiting.result.set_exception(error)  # for all clients, which would wait forever otherwise
