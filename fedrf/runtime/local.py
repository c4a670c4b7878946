"""A whole federation in one process, without Ray: clients are threads, the coordinator runs in an event loop.

Used for debugging, and to show that Ray changes no number. A client that fails ends the run.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from fedrf.config.schema import Config
from fedrf.federation.checkpoints import CoordinatorFiles, Version, files_root
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.coordinator import Coordinator
from fedrf.ownership import Fence
from fedrf.runtime.base import Ended

CANCEL_SECONDS = 0.05


class LocalFederation:
    """The clients and the coordinator of one run, as threads of this process."""

    def __init__(
        self, config: Config, sources: tuple[str, ...], target: str, fence: Fence, version: Version | None
    ) -> None:
        self.config, self.sources, self.target, self.fence = config, sources, target, fence
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._coordinator = self._submit(self._make_coordinator(version)).result()
        self._executor = ThreadPoolExecutor(len(sources) + 1)
        self._running: dict[Future[Any], str] = {}

    async def _make_coordinator(self, version: Version | None) -> Coordinator:
        files = CoordinatorFiles(files_root(self.fence.run, self.config.track.storage), self.fence)
        return Coordinator(self.config, self.sources, self.target, files, version)

    def _submit(self, coroutine: Any) -> Future[Any]:
        """Run a coroutine in the coordinator's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the coordinator."""
        return self._submit(getattr(self._coordinator, name)(*arguments)).result()

    def _send(self, content: bytes) -> Any:
        """Send a call of a client."""
        return self.call("call", content)

    def start(self, name: str, attempt: int, checkpoint: int | None) -> None:
        """Start a client in a thread of its own."""
        from fedrf.federation.worker import run_client

        info = ClientInfo(name, self.sources, self.target, self.fence.run, attempt, checkpoint, self.fence.token)
        shares = equal_shares(len(self.sources) + 1)
        running = self._executor.submit(run_client, self.config, info, self._send, **shares)
        self._running[running] = name

    def end(self, name: str) -> bool:
        """Return false: a thread cannot be ended, and does not freeze unless the whole process does."""
        return False

    def wait(self, seconds: float) -> list[Ended]:
        """Wait until a client's run ends, at most `seconds`; return the runs that ended."""
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        return [Ended(self._running.pop(future), future.exception()) for future in done]

    def close(self) -> None:
        """Stop all clients by cancelling their calls to the coordinator, then stop the event loop."""
        while wait(self._running, timeout=CANCEL_SECONDS).not_done:  # repeated: a client that computes calls later
            self._submit(_cancel_all()).result()
        self._executor.shutdown(wait=True)
        self._submit(self._loop.shutdown_default_executor()).result()  # a checkpoint that is being written
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def equal_shares(num_clients: int) -> dict[str, int]:
    """Return what each client of one process may use of this machine, as `run_over` takes it."""
    from fedrf.models.devices import num_cpus

    return {"decoders": max(1, num_cpus() // num_clients), "num_sharing": num_clients}


async def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
