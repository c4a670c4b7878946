"""Ray: the only module that imports it. A federation as actors, and what a cluster has.

A `RaySession` keeps client actors between runs, because starting one takes seconds of imports.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import ceil, floor
from pathlib import Path
from typing import Any, NamedTuple

from fedrf.checkpoints import CoordinatorFiles
from fedrf.config import Config, ResourcesConfig
from fedrf.coordinator import Coordinator
from fedrf.local import Ended
from fedrf.messages import Envelope, Reply
from fedrf.place import Place

SHARED_BYTES = 100_000  # larger arrays go through shared memory, once for all who read them
CLOSE_SECONDS = ROOM_SECONDS = 10.0


class ClusterResources(NamedTuple):
    """What a Ray cluster offers, summed over its nodes."""

    nodes: int
    cpus: float
    gpus: float
    memory_bytes: float


def cluster_resources(address: str) -> ClusterResources:
    """Ask the Ray cluster at `address` what it has; a `ConnectionError` says why it does not answer."""
    try:
        import ray  # seconds to import, and most commands do without

        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise ConnectionError(f"no Ray cluster answers at {address!r}: {str(error).splitlines()[0]}") from error
    try:
        total = ray.cluster_resources()
        alive = [node for node in ray.nodes() if node["Alive"]]
        return ClusterResources(len(alive), total.get("CPU", 0), total.get("GPU", 0), total.get("memory", 0))
    finally:
        ray.shutdown()


class Shares(NamedTuple):
    """What Ray reserves for each client, how many share a process, and how often that is started again."""

    cpus: float
    gpus: float
    clients: int
    max_restarts: int


class CoordinatorActor(Coordinator):
    """The coordinator, with large aggregates put into shared memory once instead of into every reply."""

    def __init__(self, *arguments: Any) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: the cores belong to the clients
        super().__init__(*arguments)
        self._shared: dict[str, tuple[Any, Any]] = {}

    async def where(self) -> dict[str, Any]:
        """Tell process, node and devices."""
        return _where()

    async def exchange(self, envelope: Envelope) -> Reply:
        """Answer with references to what is large."""
        reply = await super().exchange(envelope)
        return replace(reply, parts={kind: self._share(kind, values) for kind, values in reply.parts.items()})

    def _share(self, kind: str, values: Any) -> Any:
        if values.nbytes < SHARED_BYTES:
            return values
        if self._shared.get(kind, (None, None))[0] is not values:
            import ray

            self._shared[kind] = (values, ray.put(values))
        return self._shared[kind][1]


class ClientActor:
    """A process for clients."""

    def __init__(self) -> None:
        import fedrf.site  # noqa: F401  # seconds of imports, while the others start too

    def where(self) -> dict[str, Any]:
        """Tell process, node and devices."""
        return _where()

    def run(self, config: Mapping[str, Any], place: Any, coordinator: Any, shares: Shares, _after: object) -> None:
        """Run one client from beginning to end."""
        import ray

        from fedrf.site import run_client

        def link(name: str, *arguments: Any) -> Any:
            answer = ray.get(getattr(coordinator, name).remote(*arguments))
            if isinstance(answer, Reply):
                parts = {k: ray.get(v) if isinstance(v, ray.ObjectRef) else v for k, v in answer.parts.items()}
                return replace(answer, parts=parts)
            return answer

        # A client that was given no GPU must not take one that it happens to see.
        accelerator = "auto" if shares.gpus else "cpu"
        run_client(Config.model_validate(config), place, link, max(1, int(shares.cpus)), accelerator)


def _where() -> dict[str, Any]:
    import ray

    context = ray.get_runtime_context()
    return {"pid": os.getpid(), "node": context.get_node_id(), "gpus": context.get_accelerator_ids()["GPU"]}


class RaySession:
    """A connection to Ray, or a Ray of our own on this machine, with client actors to use again."""

    actor = ClientActor

    def __init__(self, address: str | None = None) -> None:
        import ray

        self._mine = not ray.is_initialized()
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        if self._mine:
            settings: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **settings)
            except Exception as error:
                reason = str(error).splitlines()[0]
                raise ConnectionError(f"no Ray cluster answers at {address!r}: {reason}") from error
        self._idle: dict[Shares, list[Any]] = {}

    def __enter__(self) -> RaySession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, count: int, shares: Shares) -> list[Any]:
        """Return an actor for each of `count` clients, new ones only where idle ones do not suffice."""
        import ray

        processes = ceil(count / shares.clients)
        idle = self._idle.setdefault(shares, [])
        taken = [idle.pop() for _ in range(min(processes, len(idle)))]
        missing = processes - len(taken)
        for others in self._idle.values():
            while missing and others:
                ray.kill(others.pop())  # of another size, and in the way
        if missing:
            self._check_room(count, shares)
            self._wait_for_room(missing, shares)
            actor = ray.remote(self.actor).options(
                num_cpus=round(shares.cpus * shares.clients, 4),
                num_gpus=round(shares.gpus * shares.clients, 4),
                max_concurrency=shares.clients,
                max_restarts=shares.max_restarts,
            )
            taken += [actor.remote() for _ in range(missing)]
        return [taken[position // shares.clients] for position in range(count)]

    def give_back(self, actors: Iterable[Any], shares: Shares) -> None:
        """Keep idle actors for the next run."""
        self._idle.setdefault(shares, []).extend({actor._actor_id: actor for actor in actors}.values())

    @staticmethod
    def shares(count: int, resources: ResourcesConfig) -> Shares:
        """Return what each of `count` clients gets."""
        import ray

        total, together = ray.cluster_resources(), min(count, resources.clients_per_actor)

        def share(wanted: float | str, kind: str) -> float:
            """Return what is wanted, or an equal part of an equal share for each process, at most 1."""
            if wanted != "auto":
                return float(wanted)
            whole: float = min(1.0, floor(100 * total.get(kind, 0.0) / ceil(count / together)) / 100)
            return whole / together

        cpus, gpus = share(resources.cpus_per_client, "CPU"), share(resources.gpus_per_client, "GPU")
        if gpus * together > 1 and gpus * together != int(gpus * together):
            raise ValueError(
                f"resources.gpus_per_client={gpus:g} for {together} clients in an actor is {gpus * together:g} GPUs; "
                "Ray takes whole numbers, or less than 1"
            )
        return Shares(cpus, gpus, together, resources.max_restarts)

    @staticmethod
    def _check_room(count: int, shares: Shares) -> None:
        import ray

        total, count = ray.cluster_resources(), shares.clients * ceil(count / shares.clients)
        for kind, each in (("CPU", shares.cpus), ("GPU", shares.gpus)):
            has = total.get(kind, 0.0)
            if each * count > has + 1e-6:
                raise ValueError(
                    f"resources.{kind.lower()}s_per_client={each:g}: {count} clients need {each * count:g} {kind}s and "
                    f"Ray has {has:g}; at most {floor(1000 * has / count) / 1000:g} each, or fewer data.sources"
                )

    @staticmethod
    def _wait_for_room(processes: int, shares: Shares) -> None:
        """Fail where others keep what the clients need, instead of waiting for ever; what just ended needs a moment."""
        import ray

        needed = {"CPU": processes * shares.clients * shares.cpus, "GPU": processes * shares.clients * shares.gpus}
        deadline = time.monotonic() + ROOM_SECONDS
        while True:
            free = ray.available_resources()
            short = [kind for kind, number in needed.items() if number > free.get(kind, 0.0) + 1e-6]
            if not short:
                return
            if time.monotonic() > deadline:
                kind = short[0]
                raise ValueError(
                    f"resources.{kind.lower()}s_per_client={getattr(shares, kind.lower() + 's'):g}: the clients need "
                    f"{needed[kind]:g} {kind}s, and of Ray's {ray.cluster_resources().get(kind, 0):g} only "
                    f"{free.get(kind, 0):g} are free; take less, or wait for the others"
                )
            time.sleep(0.2)

    def close(self) -> None:
        """End what this session started."""
        import ray

        for actors in self._idle.values():
            for actor in actors:
                ray.kill(actor)
        self._idle = {}
        if self._mine:
            ray.shutdown()


class RayFederation:
    """The clients and the coordinator of one run, as actors."""

    def __init__(
        self, session: RaySession, config: Config, sources: tuple[str, ...], target: str, run: Path, resume: bool
    ) -> None:
        import ray

        self.session, self.config, self.sources, self.target, self.run = session, config, sources, target, run
        names = (*sources, target)
        self._shares = session.shares(len(names), config.resources)
        self._actors = dict(zip(names, session.take(len(names), self._shares), strict=True))
        self._running: dict[Any, str] = {}
        self._lost: set[str] = set()
        # Never restarted by Ray: a blank coordinator would answer calls that were meant for the old one.
        coordinator = ray.remote(CoordinatorActor).options(num_cpus=0, max_restarts=0)
        self._coordinator = coordinator.remote(config, sources, target, CoordinatorFiles.claim(run), resume)
        # Asked now: later they are busy.
        everybody: dict[str, Any] = {**self._actors, "coordinator": self._coordinator}
        self._where = {name: actor.where.remote() for name, actor in everybody.items()}

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the coordinator; a `ConnectionError` if it is gone."""
        import ray

        try:
            return ray.get(getattr(self._coordinator, name).remote(*arguments))
        except ray.exceptions.RayActorError as error:
            raise ConnectionError(f"the coordinator is gone: {str(error).splitlines()[0]}") from error

    def start(self, name: str, attempt: int, checkpoint: Path | None) -> None:
        """Begin a client's run; on an actor that Ray is just restarting, as soon as it is back."""
        actor, place = self._actors[name], Place(name, self.sources, self.target, self.run, attempt, checkpoint)
        # A call to an actor that restarts fails, unless it may be repeated. This one may, and the run waits for it.
        back = actor.where.options(max_task_retries=-1).remote()
        plain = self.config.model_dump(mode="json")
        reference = actor.run.remote(plain, place, self._coordinator, self._shares, back)
        self._running[reference] = name

    def where(self) -> dict[str, dict[str, Any]]:
        """Return process, node and devices of the coordinator and of every client, as they were at the start."""
        import ray

        return dict(zip(self._where, ray.get(list(self._where.values())), strict=True))

    def wait(self, seconds: float) -> list[Ended]:
        """Return the clients whose run ended, waiting for one; a `ConnectionError` if the coordinator is gone."""
        import ray

        done, _ = ray.wait(list(self._running), num_returns=1, timeout=seconds)
        ended = []
        for reference in done:
            name = self._running.pop(reference)
            try:
                ray.get(reference)
                ended.append(Ended(name))
            except ray.exceptions.RayTaskError as error:  # first: with this cause it is a RayActorError as well
                if isinstance(error.cause, ray.exceptions.RayActorError):
                    raise ConnectionError(f"the coordinator is gone, says {name}") from error
                ended.append(Ended(name, error.cause))
            except ray.exceptions.RayActorError as error:
                ended.append(Ended(name, error, lost=True))
                self._lost.add(name)
        return ended

    def close(self) -> None:
        """End the coordinator, and with it every call that waits for it; keep the clients that are then idle."""
        import ray

        ray.kill(self._coordinator)  # type: ignore[arg-type]
        _, busy = ray.wait(list(self._running), num_returns=len(self._running), timeout=CLOSE_SECONDS)
        gone = {self._actors[name]._actor_id for name in self._lost.union(self._running[one] for one in busy)}
        for name, actor in list(self._actors.items()):
            if actor._actor_id in gone:
                ray.kill(self._actors.pop(name))
        self.session.give_back(self._actors.values(), self._shares)
        self._actors, self._running = {}, {}
