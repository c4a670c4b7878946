"""Ray: the only module that imports it. A federation as actors, and what a cluster has.

A `RaySession` keeps client actors between runs, because starting one takes seconds of imports.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedrf.config.schema import Config, ResourcesConfig
from fedrf.federation.checkpoints import CoordinatorFiles
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.coordinator import Coordinator
from fedrf.protocol.messages import Envelope, Reply
from fedrf.runtime.local import Ended
from fedrf.runtime.placement import Needs, needs, too_busy, too_little

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
        import fedrf.federation.worker  # noqa: F401  # seconds of imports, while the others start too

    def where(self) -> dict[str, Any]:
        """Tell process, node and devices."""
        return _where()

    def run(self, config: Mapping[str, Any], place: Any, coordinator: Any, wanted: Needs, _after: object) -> None:
        """Run one client from beginning to end."""
        import ray

        from fedrf.federation.worker import run_client

        def link(name: str, *arguments: Any) -> Any:
            answer = ray.get(getattr(coordinator, name).remote(*arguments))
            if isinstance(answer, Reply):
                parts = {k: ray.get(v) if isinstance(v, ray.ObjectRef) else v for k, v in answer.parts.items()}
                return replace(answer, parts=parts)
            return answer

        # A client that was given no GPU must not take one that it happens to see.
        accelerator = "auto" if wanted.gpus else "cpu"
        run_client(Config.model_validate(config), place, link, max(1, int(wanted.cpus)), accelerator)


def _where() -> dict[str, Any]:
    import ray

    context = ray.get_runtime_context()
    return {"pid": os.getpid(), "node": context.get_node_id(), "gpus": context.get_accelerator_ids()["GPU"]}


@dataclass
class Crew:
    """Client actors by the number of their bundle in a placement group, and what they were made for."""

    wanted: Needs
    group: Any
    actors: dict[int, Any]

    def actor(self, position: int) -> Any:
        """Return the actor of a client."""
        return self.actors[position // self.wanted.clients]


class RaySession:
    """A connection to Ray, or a Ray of our own on this machine, with client actors to use again.

    Parameters
    ----------
    address
        A Ray cluster; default $RAY_ADDRESS, else a Ray of our own.
    group
        A placement group whose last bundles are for the client processes, where somebody else has reserved the room.
    """

    actor = ClientActor

    _idle: Crew | None

    def __init__(self, address: str | None = None, group: Any = None) -> None:
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
        self._group, self._idle = group, None

    def __enter__(self) -> RaySession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, names: Sequence[str], resources: ResourcesConfig) -> Crew:
        """Return an actor for each client: those that are idle if they fit, else new ones."""
        import ray

        wanted = needs(names, resources, ray.cluster_resources())
        crew, self._idle = self._idle, None
        if crew is None or crew.wanted != wanted:
            if crew is not None:
                self._dismiss(crew)
            crew = Crew(wanted, self._group or self._reserve(wanted, resources.wait_seconds), {})
        for number in set(range(len(wanted.nodes))) - set(crew.actors):
            crew.actors[number] = self._hire(crew, number)
        return crew

    def try_room(self, names: Sequence[str], resources: ResourcesConfig) -> Needs:
        """Return what the clients need, after making sure that there is room for them now."""
        import ray
        from ray.util import remove_placement_group

        wanted = needs(names, resources, ray.cluster_resources())
        remove_placement_group(self._reserve(wanted, resources.wait_seconds))
        return wanted

    def give_back(self, crew: Crew) -> None:
        """Keep idle actors for the next run."""
        self._idle = crew

    def _hire(self, crew: Crew, number: int) -> Any:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        place = crew.group.bundle_count - len(crew.wanted.nodes) + number
        bundle = dict(crew.group.bundle_specs[place])  # what is there: a resumed run may remember a larger machine
        actor = ray.remote(self.actor).options(
            num_cpus=bundle.pop("CPU", 0),
            num_gpus=bundle.pop("GPU", 0),
            resources=bundle,
            max_concurrency=crew.wanted.clients,
            max_restarts=crew.wanted.max_restarts,
            scheduling_strategy=PlacementGroupSchedulingStrategy(crew.group, place),
        )
        return actor.remote()

    @staticmethod
    def _reserve(wanted: Needs, seconds: float) -> Any:
        """Reserve all that the clients need, or say why that cannot be; what just ended needs a moment to be free."""
        import ray
        from ray.util import placement_group, remove_placement_group

        complaint = too_little(wanted, ray.cluster_resources())
        if complaint and not seconds:
            raise ValueError(complaint)
        group = placement_group(wanted.bundles, wanted.strategy)
        try:
            if group.wait(max(seconds, ROOM_SECONDS)):
                return group
            total, free = ray.cluster_resources(), ray.available_resources()
            raise ValueError(too_little(wanted, total) or too_busy(wanted, total, free))
        except BaseException:
            remove_placement_group(group)
            raise

    def _dismiss(self, crew: Crew) -> None:
        import ray
        from ray.util import remove_placement_group

        for actor in crew.actors.values():
            ray.kill(actor)
        if crew.group is not self._group:
            remove_placement_group(crew.group)

    def release(self) -> None:
        """End idle actors, for others need the room."""
        if self._idle is not None:
            self._dismiss(self._idle)
            self._idle = None

    def close(self) -> None:
        """End what this session started."""
        import ray

        self.release()
        if self._mine:
            ray.shutdown()


class RayFederation:
    """The clients and the coordinator of one run, as actors."""

    def __init__(
        self, session: RaySession, config: Config, sources: tuple[str, ...], target: str, run: Path, resume: bool
    ) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.session, self.config, self.sources, self.target, self.run = session, config, sources, target, run
        names = (*sources, target)
        self._crew = session.take(names, config.resources)
        self._actors = {name: self._crew.actor(position) for position, name in enumerate(names)}
        self._running: dict[Any, str] = {}
        self._lost: set[str] = set()
        try:
            state = CoordinatorFiles.claim(run)
        except BaseException:
            session.give_back(self._crew)
            raise
        # Never restarted by Ray: a blank coordinator would answer calls that were meant for the old one.
        # Beside the driver: both work on the run directory.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        coordinator = ray.remote(CoordinatorActor).options(num_cpus=0, max_restarts=0, scheduling_strategy=here)
        self._coordinator = coordinator.remote(config, sources, target, state, resume)
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
        actor, place = self._actors[name], ClientInfo(name, self.sources, self.target, self.run, attempt, checkpoint)
        # A call to an actor that restarts fails, unless it may be repeated. This one may, and the run waits for it.
        back = actor.where.options(max_task_retries=-1).remote()
        plain = self.config.model_dump(mode="json")
        reference = actor.run.remote(plain, place, self._coordinator, self._crew.wanted, back)
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
        for number, actor in list(self._crew.actors.items()):
            if actor._actor_id in gone:
                ray.kill(self._crew.actors.pop(number))
        self.session.give_back(self._crew)
        self._actors, self._running = {}, {}
