"""Signs of life of a client, sent by a thread of its own while the client computes or waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedrf.federation.liveness import SupersededError


@contextmanager
def heartbeat(beat: Callable[[], object], pause: float) -> Iterator[None]:
    """Call `beat` every `pause` seconds until the block ends or another process has replaced this one.

    Other failures are not reported: the network may come back, or the next call of the client fails in the same way.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(pause):
            try:
                beat()
            except SupersededError:
                return
            except Exception:
                continue

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
