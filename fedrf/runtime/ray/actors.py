"""The Ray actors of a federation: the coordinator, and processes that run clients."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrf.config.schema import Config
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.coordinator import Coordinator
from fedrf.federation.liveness import pause_between_beats
from fedrf.protocol.envelope import Reply
from fedrf.runtime.placement import Requirements

if TYPE_CHECKING:
    from fedrf.runtime.fibers import Fiber

SHARED_BYTES = 100_000  # larger arrays are put into shared memory, once for all clients


class CoordinatorActor(Coordinator):
    """The coordinator; large aggregates are put into shared memory once instead of into every reply."""

    def __init__(self, *arguments: Any) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: the cores belong to the clients
        super().__init__(*arguments)
        self._shared: dict[str, tuple[Any, Any]] = {}

    async def where(self) -> dict[str, Any]:
        """Return process, node and GPUs."""
        return _where()

    async def call(self, content: Any) -> Any:
        """Reply with references to large arrays; a large call is an array of bytes in shared memory."""
        answer = await super().call(content.data if isinstance(content, np.ndarray) else content)
        if not isinstance(answer, Reply):
            return answer
        return replace(answer, parts={kind: self._share(kind, values) for kind, values in answer.parts.items()})

    def _share(self, kind: str, values: Any) -> Any:
        if values.nbytes < SHARED_BYTES:
            return values
        if self._shared.get(kind, (None, None))[0] is not values:
            import ray

            self._shared[kind] = (values, ray.put(values))
        return self._shared[kind][1]


class ClientActor:
    """A process that runs clients, one after the other."""

    def __init__(self) -> None:
        import fedrf.federation.worker  # noqa: F401  # takes seconds: done while the other actors start too

    def where(self) -> dict[str, Any]:
        """Return process, node and GPUs."""
        return _where()

    def check_files(self, config: Mapping[str, Any], client: str) -> str:
        """Check the files of a client on this node; return what is wrong, or nothing."""
        from fedrf.data.domains import domains_of, locate
        from fedrf.data.preflight import check_clients

        try:
            checked = Config.model_validate(config)
            domains = domains_of(checked, client)
            locate(checked.data, domains)
            check_clients(checked, domains)
        except ValueError as error:
            return str(error)
        return ""

    def run(
        self,
        config: Mapping[str, Any],
        info: ClientInfo,
        coordinator: Any,
        requirements: Requirements,
        _ready: object,
    ) -> None:
        """Run one client from beginning to end, after the call that `_ready` is the result of."""
        from fedrf.federation.worker import run_client

        run_client(Config.model_validate(config), info, _link(coordinator), **_shares(requirements))


class ObjectStore:
    """Keeps arrays in Ray's shared memory, from which Ray moves them to a disk when it is full."""

    def put(self, arrays: Sequence[Any]) -> Any:
        """Store copies of arrays and return their key."""
        import ray

        return ray.put(list(arrays))

    def get(self, key: Any) -> Sequence[Any]:
        """Return the arrays of a key."""
        import ray

        arrays: Sequence[Any] = ray.get(key)
        return arrays


class RunsFibers:
    """Part of a process that runs several clients, as fibers of one thread: while one waits, another goes on."""

    def __init__(self) -> None:
        super().__init__()
        from fedrf.federation.heartbeat import SharedHeartbeat

        self._heartbeat = SharedHeartbeat()
        self._thread = ThreadPoolExecutor(1)  # not that of Ray's event loop, which goes on while a client computes

    async def run(
        self,
        config: Mapping[str, Any],
        info: ClientInfo,
        coordinator: Any,
        requirements: Requirements,
        _ready: object,
    ) -> None:
        """Run one client from beginning to end, beside the others."""
        from fedrf.federation.channel import Channel
        from fedrf.federation.worker import run_over
        from fedrf.runtime.fibers import Fiber

        checked, send = Config.model_validate(config), _link(coordinator)
        shares = _shares(requirements)

        def program(wait: Callable[[bytes], Any]) -> None:
            channel = Channel(info, send, checked.train.rounds, wait, ObjectStore())
            with self._heartbeat.of(channel, pause_between_beats(checked.federation.deadline)):
                run_over(checked, channel, **shares)

        await self._run_fiber(Fiber(program), coordinator)

    async def _run_fiber(self, fiber: Fiber, coordinator: Any) -> None:
        """Run a client to its end; other fibers run while the coordinator answers."""
        call, loop = coordinator.call.options(max_task_retries=-1), asyncio.get_running_loop()
        content = await loop.run_in_executor(self._thread, fiber.start)
        while content is not None:
            try:
                answer = await _submit(call, content)
                go_on = partial(fiber.answer, await loop.run_in_executor(None, _with_arrays, answer))
            except Exception as error:
                go_on = partial(fiber.fail, error)
            content = await loop.run_in_executor(self._thread, go_on)


def _link(coordinator: Any) -> Callable[[bytes], Any]:
    """Return a function that sends a call to the coordinator actor and reads shared arrays of its reply.

    While the network is interrupted, Ray repeats a call: repeated calls get the same answer. If that takes longer than
    the deadline, the driver ends this process.
    """
    call = coordinator.call.options(max_task_retries=-1)
    return lambda content: _with_arrays(_answer(_submit(call, content)))


def _submit(call: Any, content: bytes) -> Any:
    """Send a call; a large one as an array, which Ray hands over in shared memory without copies of its own."""
    return call.remote(content if len(content) < SHARED_BYTES else np.frombuffer(content, np.uint8))


def _answer(reference: Any) -> Any:
    """Wait for the coordinator's answer."""
    import ray

    return ray.get(reference)


def _with_arrays(answer: Any) -> Any:
    """Return an answer with shared arrays instead of references to them."""
    import ray

    if not isinstance(answer, Reply):
        return answer
    parts = {kind: ray.get(part) if isinstance(part, ray.ObjectRef) else part for kind, part in answer.parts.items()}
    return replace(answer, parts=parts)


def _shares(requirements: Requirements) -> dict[str, Any]:
    """Return what a client may use of this node, as `run_over` takes it."""
    # A client that reserved no GPU must not use one that its process can see.
    gpus = requirements.gpus
    return {"threads": max(1, int(requirements.cpus)), "reserved_gpus": gpus, "decoders": _decoders(gpus)}


def _decoders(gpus: float) -> int:
    """Return the part of this node's CPUs that goes with so many of its GPUs."""
    import ray

    from fedrf.models.devices import num_cpus

    this_node = ray.get_runtime_context().get_node_id()
    resources = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == this_node)
    total, cpus = resources.get("GPU", 0.0), resources.get("CPU") or num_cpus()
    return max(1, int(cpus * gpus / total)) if total else 1


def _where() -> dict[str, Any]:
    import ray

    context = ray.get_runtime_context()
    return {"pid": os.getpid(), "node": context.get_node_id(), "gpus": context.get_accelerator_ids()["GPU"]}
