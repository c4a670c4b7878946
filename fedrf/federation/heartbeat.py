"""Signs of life of a client, sent by a thread of its own while the client computes or waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def heartbeat(beat: Callable[[], object], pause: float) -> Iterator[None]:
    """Call `beat` every `pause` seconds until the block ends or a call fails.

    A failure is not reported: the next call of the client itself fails in the same way.
    """
    ended = threading.Event()

    def run() -> None:
        try:
            while not ended.wait(pause):
                beat()
        except Exception:
            return

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
