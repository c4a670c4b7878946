"""Clients that share a thread: each runs until it calls the coordinator, and another goes on while it waits.

A client is a program that runs from beginning to end and calls `send`. A fiber suspends it there, so that one thread
can run any number of clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from greenlet import greenlet


class Fiber:
    """A program that is suspended whenever it sends something.

    Parameters
    ----------
    run
        The program; it is called with the function that sends and returns the answer.
    """

    def __init__(self, run: Callable[[Callable[[bytes], Any]], None]) -> None:
        self._greenlet = greenlet(lambda: run(self._send))

    @property
    def is_suspended(self) -> bool:
        """Whether the program has sent something and has not got the answer."""
        return bool(self._greenlet)

    def start(self) -> bytes | None:
        """Run to the first call and return it; None if the program ended."""
        return self._go_on(self._greenlet.switch)

    def answer(self, value: Any) -> bytes | None:
        """Run from an answer to the next call and return it; None if the program ended."""
        return self._go_on(self._greenlet.switch, value)

    def fail(self, error: BaseException) -> bytes | None:
        """Raise an error in the program, instead of an answer; otherwise as `answer`."""
        return self._go_on(self._greenlet.throw, error)

    def _go_on(self, switch: Callable[..., Any], *arguments: Any) -> bytes | None:
        self._greenlet.parent = greenlet.getcurrent()
        with torch.enable_grad():  # a thread's setting, which every program changes for itself
            call: bytes | None = switch(*arguments)
        return call

    def _send(self, content: bytes) -> Any:
        computes_gradients = torch.is_grad_enabled()
        try:
            parent = self._greenlet.parent
            assert parent is not None
            return parent.switch(content)
        finally:
            torch.set_grad_enabled(computes_gradients)
