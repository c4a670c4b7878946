"""Signs of life of clients, sent by a thread of its own while they compute or wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fedrf.federation.liveness import SupersededError

if TYPE_CHECKING:
    from fedrf.federation.channel import Channel


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


class SharedHeartbeat:
    """Signs of life of all clients of a process, sent together by one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}

    @contextmanager
    def of(self, channel: Channel, pause: float) -> Iterator[None]:
        """Show every `pause` seconds that a client is alive, until the block ends."""
        name = channel.info.name
        with self._lock:
            is_first = not self._channels
            self._channels[name] = channel
        if is_first:
            threading.Thread(target=self._run, args=(pause,), name="heartbeat", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                del self._channels[name]

    def _run(self, pause: float) -> None:
        while channels := self._current():
            with suppress(Exception):  # as in `heartbeat`; a client that was replaced notices at its next call
                channels[0].beat_for({channel.info.name: channel.info.attempt for channel in channels})
            time.sleep(pause)

    def _current(self) -> list[Channel]:
        with self._lock:
            return list(self._channels.values())
