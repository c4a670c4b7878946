"""A barrier: calls that are answered together, when all expected clients have made them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Key = tuple[int, ...]


class _Waiting:
    """What each client has brought to one use of the barrier, who is missing, and the result for all."""

    def __init__(self, missing: set[str]) -> None:
        self.entries: dict[str, Any] = {}
        self.missing = missing
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Barrier:
    """A barrier that is used many times, each time with another key.

    Parameters
    ----------
    expected
        Returns the clients that must arrive in one use; `recheck` tells that they have changed.
    close
        Computes the result of one use, once, from the entries of all clients.
    leave
        Is told about a client that did not arrive in time, which may then be no longer expected.
    deadline
        Seconds until then; without one, the barrier waits as long as it takes.
    """

    def __init__(
        self,
        expected: Callable[[Key], set[str]],
        close: Callable[[Key, dict[str, Any]], Any],
        leave: Callable[[str, str], Awaitable[None]] | None = None,
        deadline: float | None = None,
    ) -> None:
        self._expected, self._close, self._leave, self._deadline = expected, close, leave, deadline
        self._open: dict[Key, _Waiting] = {}

    async def wait(self, key: Key, sender: str, entry: Any) -> Any:
        """Add an entry and wait for the result."""
        if key not in self._open:
            self._open[key] = _Waiting(self._expected(key))
        waiting = self._open[key]
        waiting.entries[sender] = entry
        waiting.missing.discard(sender)
        self._close_if_complete(key)
        while not (await asyncio.wait([waiting.result], timeout=self._deadline))[0]:
            assert self._leave is not None  # together with a deadline
            for name in sorted(waiting.missing):
                await self._leave(name, f"late by {self._deadline:g} s")
        return waiting.result.result()

    def release(self) -> None:
        """End all waiting calls without a result."""
        for waiting in self._open.values():
            waiting.result.set_result(None)
        self._open.clear()

    def recheck(self) -> None:
        """Look again who is missing: a client came, left or finished."""
        for key, waiting in list(self._open.items()):
            waiting.missing = self._expected(key) - waiting.entries.keys()
            self._close_if_complete(key)

    def _close_if_complete(self, key: Key) -> None:
        """Close a use of the barrier for which all expected clients have arrived."""
        if self._open[key].missing:
            return
        waiting = self._open.pop(key)
        try:
            waiting.result.set_result(self._close(key, waiting.entries))
        except Exception as error:
            waiting.result.set_exception(error)  # for all clients, which would wait forever otherwise
