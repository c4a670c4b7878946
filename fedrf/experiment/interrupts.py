"""Ctrl-C and SIGTERM while a run goes on: a wish at first, an order the second time."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """Notes the first signal instead of breaking off whatever is being done; the second raises `KeyboardInterrupt`.

    Schedulers end jobs with SIGTERM, so that means the same. Only the main thread of a process can listen.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {one: signal.signal(one, self._note) for one in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)
            outer = getattr(handler, "__self__", None)
            if isinstance(outer, Interrupts):  # whoever runs several things one after the other wants to know too
                outer.wanted = outer.wanted or self.wanted

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
