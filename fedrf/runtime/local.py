"""A whole federation in one process, without Ray: clients are threads, the coordinator an event loop in another.

For debugging, and to show that Ray changes no number. A client that fails ends the run.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from fedrf.config.schema import Config
from fedrf.federation.checkpoints import CoordinatorFiles
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.coordinator import Coordinator


class Ended(NamedTuple):
    """A client's run is over: it returned, it failed, or its process is gone (`lost`)."""

    client: str
    error: BaseException | None = None
    lost: bool = False


class LocalFederation:
    """The clients and the coordinator of one run, as the driver sees them."""

    def __init__(self, config: Config, sources: tuple[str, ...], target: str, run: Path, resume: bool) -> None:
        self.config, self.sources, self.target, self.run = config, sources, target, run
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._coordinator = self._in_loop(self._make(resume)).result()
        self._pool = ThreadPoolExecutor(len(sources) + 1)
        self._running: dict[Future[Any], str] = {}

    async def _make(self, resume: bool) -> Coordinator:
        return Coordinator(self.config, self.sources, self.target, CoordinatorFiles.claim(self.run), resume)

    def _in_loop(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the coordinator; what the clients' `link` does too."""
        return self._in_loop(getattr(self._coordinator, name)(*arguments)).result()

    def start(self, name: str, attempt: int, checkpoint: Path | None) -> None:
        """Begin a client's run."""
        from fedrf.federation.worker import run_client

        place = ClientInfo(name, self.sources, self.target, self.run, attempt, checkpoint)
        self._running[self._pool.submit(run_client, self.config, place, self.call)] = name

    def wait(self, seconds: float) -> list[Ended]:
        """Return the clients whose run ended, waiting so long for one."""
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        return [Ended(self._running.pop(future), future.exception()) for future in done]

    def close(self) -> None:
        """End everything; clients that still wait for each other are let go."""
        while wait(self._running, timeout=0.05).not_done:  # again and again: a client at work has yet to call
            self._in_loop(_cancel_all()).result()
        self._pool.shutdown(wait=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
