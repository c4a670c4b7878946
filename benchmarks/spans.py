"""Where the time of a round goes: spans of time in all processes, on the clock that they share."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

SPANS: list[Span] = []  # of this process


class Span(NamedTuple):
    """A piece of work of one process.

    Attributes
    ----------
    what
        The work.
    begin, end
        Seconds of the machine's monotonic clock.
    """

    what: str
    begin: float
    end: float


def record(what: str, owner: Any, name: str) -> None:
    """Let a function or method of `owner` record its calls as spans."""
    function: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(function)
    def timed(*arguments: Any, **keys: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*arguments, **keys)
        finally:
            SPANS.append(Span(what, begin, time.perf_counter()))

    setattr(owner, name, timed)
