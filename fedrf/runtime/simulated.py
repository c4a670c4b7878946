"""A federation in simulated time: one thread runs the coordinator and all clients, and its clock jumps between events.

A client computes, with its real data, in no simulated time, and a call that it makes leaves later by the time that the
round is said to take. The coordinator is the same as elsewhere. Messages, and so results, come in an order that the
seed determines, also in async mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import is_dataclass
from functools import partial
from typing import Any

from fedrf.config.schema import Config
from fedrf.federation.channel import Channel, Send
from fedrf.federation.checkpoints import CoordinatorFiles, Version, files_root
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.coordinator import Coordinator
from fedrf.federation.liveness import AlwaysAlive
from fedrf.ownership import Fence
from fedrf.protocol.wire import pack_call
from fedrf.runtime.base import Ended
from fedrf.runtime.fibers import Fiber
from fedrf.runtime.local import equal_shares
from fedrf.runtime.pace import Pace
from fedrf.runtime.virtual_time import VirtualTimeLoop

# Calls that take time. Others report something, and depend on the machine: when a checkpoint is due, for example.
TIMED_CALLS = ("greet", "warm_start", "exchange", "finish")


def payload(value: Any) -> int:
    """Return the bytes of the messages and arrays in a call or an answer, as the ledger counts them."""
    if (nbytes := getattr(value, "nbytes", None)) is not None:
        return int(nbytes)
    if is_dataclass(value):
        return sum(map(payload, vars(value).values()))
    if isinstance(value, Mapping):
        return sum(map(payload, value.values()))
    return sum(map(payload, value)) if isinstance(value, tuple | list) else 0


class SimulatedClient:
    """A client that is suspended while its calls are on their way.

    Parameters
    ----------
    config
        The configuration.
    info
        The client.
    coordinator
        Answers its calls.

    Attributes
    ----------
    pace
        How long its computing and its calls take.
    computing
        Seconds for which it has computed since the last answer.
    sending
        Bytes of the call that it makes.
    fiber
        Its program.
    """

    def __init__(self, config: Config, info: ClientInfo, coordinator: Coordinator) -> None:
        self.config, self.info, self.coordinator = config, info, coordinator
        self.pace = Pace(config.simulation, config.seed, info.position, len(info.sources))
        self.computing, self.sending = 0.0, 0
        self.fiber = Fiber(self._run)

    def _run(self, send: Send) -> None:
        from fedrf.federation.worker import run_over

        run_over(self.config, SimulatedChannel(self, send), **equal_shares(len(self.info.sources) + 1))


class SimulatedChannel(Channel):
    """A client's connection in simulated time."""

    def __init__(self, client: SimulatedClient, send: Send) -> None:
        super().__init__(client.info, send, client.config.train.rounds)
        self._client = client

    def _call(self, name: str, *arguments: Any) -> Any:
        client, content = self._client, pack_call(name, self.info.name, self.info.attempt, *arguments)
        if name not in TIMED_CALLS:
            return _at_once(client.coordinator.call(content))
        client.sending = payload(arguments)
        return self._send(content)

    def now(self) -> float:
        """Return the simulated time of the client."""
        return self._client.coordinator.clock.seconds + self._client.computing

    def begin(self, number: int, delay: float = 0.0) -> None:
        """Begin a round or a step."""
        self._client.computing += delay + self._client.pace.computing(number)

    def moment(self) -> dict[str, float]:
        """Return the simulated time, for figures that are reported now."""
        return {"time": self.now()}


class SimulatedFederation:
    """The clients and the coordinator of one run, in simulated time."""

    def __init__(
        self, config: Config, sources: tuple[str, ...], target: str, fence: Fence, version: Version | None
    ) -> None:
        self.config, self.sources, self.target, self.fence = config, sources, target, fence
        self._loop = VirtualTimeLoop()
        # One thread: fibers cannot change theirs, and the driver's is interrupted by signals.
        self._thread = ThreadPoolExecutor(1)
        self._coordinator: Coordinator = self._complete(self._make_coordinator(version))
        self._clients: dict[str, SimulatedClient] = {}
        self._ended: list[Ended] = []

    async def _make_coordinator(self, version: Version | None) -> Coordinator:
        files = CoordinatorFiles(files_root(self.fence.run, self.config.track.storage), self.fence)
        alive = AlwaysAlive((*self.sources, self.target), self.config.federation.deadline)
        return Coordinator(self.config, self.sources, self.target, files, version, self._loop.time, alive)

    def _complete(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, in no simulated time."""
        return self._thread.submit(self._loop.run_until_complete, coroutine).result()

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the coordinator."""
        return self._complete(getattr(self._coordinator, name)(*arguments))

    def start(self, name: str, attempt: int, checkpoint: int | None) -> None:
        """Start a client, as soon as the simulation goes on."""
        info = ClientInfo(name, self.sources, self.target, self.fence.run, attempt, checkpoint, self.fence.token)
        self._clients[name] = client = SimulatedClient(self.config, info, self._coordinator)
        self._at(self._now, client, partial(self._go_on, client, client.fiber.start))

    def end(self, name: str) -> bool:
        """Return false: there is no process that could be ended."""
        return False

    def wait(self, seconds: float) -> list[Ended]:
        """Simulate until a client's run ends, at most `seconds` of the machine's time; return the runs that ended."""
        if not self._ended:
            self._thread.submit(self._loop.run_for, seconds).result()
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Stop all clients that have not ended, and the coordinator."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _close(self) -> None:
        for client in self._clients.values():
            self._end_run(client)
        self._loop.run_until_complete(_cancel_others())
        self._loop.close()

    def _end_run(self, client: SimulatedClient) -> None:
        """Cancel the call that a client waits for, so that it ends."""
        while client.fiber.is_suspended:
            with suppress(Exception, asyncio.CancelledError):
                client.fiber.fail(asyncio.CancelledError())

    # Events

    @property
    def _now(self) -> float:
        """The simulated time of the run, over all its restarts."""
        return self._coordinator.clock.seconds

    def _at(self, when: float, client: SimulatedClient, action: Callable[[], None]) -> None:
        """Schedule what happens to a client; at the same moment, in the order of the clients."""
        earlier = self._now - self._loop.time()  # seconds before a restart
        self._loop.at(when - earlier, client.info.position, action)

    def _go_on(self, client: SimulatedClient, run: Callable[[], bytes | None]) -> None:
        """Run a client to its next call, and send that on its way."""
        client.computing = 0.0
        try:
            content = run()
        except Exception as error:
            self._note_end(Ended(client.info.name, error))
            return
        if content is None:
            self._note_end(Ended(client.info.name))
            return
        arrival = client.pace.sent(self._now, client.computing, client.sending)
        self._at(arrival, client, partial(self._arrive, client, content))

    def _note_end(self, ended: Ended) -> None:
        self._ended.append(ended)
        self._loop.stop()

    def _arrive(self, client: SimulatedClient, content: bytes) -> None:
        """Let the coordinator answer a call."""
        task = self._loop.create_task(self._coordinator.call(content))
        task.add_done_callback(partial(self._answer, client))

    def _answer(self, client: SimulatedClient, task: asyncio.Task[Any]) -> None:
        """Send an answer on its way."""
        if task.cancelled():
            return
        error = task.exception()
        answer = None if error else task.result()
        run = partial(client.fiber.fail, error) if error else partial(client.fiber.answer, answer)
        self._at(client.pace.received(self._now, payload(answer)), client, partial(self._go_on, client, run))


async def _cancel_others() -> None:
    """Cancel all tasks of the event loop but this one."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("this call waits, and so it cannot be answered at once")
