"""Ctrl-C and SIGTERM during a run: the first asks the run to stop, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """Records the first signal; the second raises `KeyboardInterrupt`.

    Schedulers end jobs with SIGTERM, which is handled like Ctrl-C. Only the main thread of a process receives signals.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._record) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
            outer = getattr(handler, "__self__", None)
            if isinstance(outer, Interrupts):  # an outer loop over several runs stops too
                outer.wanted = outer.wanted or self.wanted

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
