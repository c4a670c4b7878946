"""One federation as Ray actors."""

from __future__ import annotations

from typing import Any

from fedrf.config.schema import Config
from fedrf.errors import reason
from fedrf.federation.checkpoints import CoordinatorFiles, Version, files_root
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.liveness import STARTUP_FACTOR, SupersededError
from fedrf.ownership import Fence
from fedrf.runtime.base import Ended
from fedrf.runtime.ray.actors import CoordinatorActor
from fedrf.runtime.ray.session import RaySession

CLOSE_SECONDS = 10.0
CALLS_AT_A_TIME = 1000  # Ray's default for the coordinator


class RayFederation:
    """The clients and the coordinator of one run, as actors."""

    coordinator_class = CoordinatorActor

    def __init__(
        self,
        session: RaySession,
        config: Config,
        sources: tuple[str, ...],
        target: str,
        fence: Fence,
        version: Version | None,
    ) -> None:
        self.session, self.config, self.sources, self.target, self.fence = session, config, sources, target, fence
        names = (*sources, target)
        self._pool = session.acquire(names, config.resources)
        self._processes = {name: self._pool.process_of(position) for position, name in enumerate(names)}
        self._running: dict[Any, str] = {}
        self._lost: set[str] = set()
        self._is_started = False
        self._coordinator = self._start_coordinator(version)
        # Asked now, because the actors do not answer while they run clients.
        actors = {name: self._actor(name) for name in names} | {"coordinator": self._coordinator}
        self._where = {name: actor.where.remote() for name, actor in actors.items()}

    def _start_coordinator(self, version: Version | None) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # On the node of the driver, because both write to the run directory. Ray must not restart the coordinator: a
        # new one without state would answer calls that were meant for the old one.
        this_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        calls = CALLS_AT_A_TIME + len(self.sources)  # those of sources that skip rounds wait for their turn
        actor = ray.remote(self.coordinator_class).options(
            num_cpus=0, max_restarts=0, max_concurrency=calls, scheduling_strategy=this_node
        )
        files = CoordinatorFiles(files_root(self.fence.run, self.config.track.storage), self.fence)
        return actor.remote(self.config, self.sources, self.target, files, version)

    def _actor(self, name: str) -> Any:
        return self._pool.actors[self._processes[name]]

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the coordinator; raise `ConnectionError` if its process died or does not answer."""
        import ray

        limit = STARTUP_FACTOR * self.config.federation.deadline
        if self._is_started:
            limit = self.config.federation.deadline
        try:
            answer = ray.get(getattr(self._coordinator, name).remote(*arguments), timeout=limit)
            self._is_started = True
            return answer
        except ray.exceptions.GetTimeoutError:
            raise ConnectionError(f"the coordinator was lost: it has not answered for {limit:g} s") from None
        except ray.exceptions.RayTaskError:  # first: it is a RayError as well
            raise
        except ray.exceptions.RayError as error:
            raise ConnectionError(f"the coordinator was lost: {reason(error)}") from error

    def start(self, name: str, attempt: int, checkpoint: int | None) -> None:
        """Start a client; if Ray is restarting its actor, as soon as that is done."""
        info = ClientInfo(name, self.sources, self.target, self.fence.run, attempt, checkpoint, self.fence.token)
        actor, config = self._actor(name), self.config.model_dump(mode="json")
        # A call to a restarting actor fails unless Ray may retry it. `where` may be retried, and `run` waits for it.
        ready = actor.where.options(max_task_retries=-1).remote()
        reference = actor.run.remote(config, info, self._coordinator, self._pool.requirements, ready)
        self._running[reference] = name

    def end(self, name: str) -> bool:
        """End the process of a client, also if it is frozen; Ray starts another one."""
        import ray

        ray.kill(self._actor(name), no_restart=False)
        return True

    def where(self) -> dict[str, dict[str, Any]]:
        """Return process, node and GPUs of the coordinator and of every client, as they were at the start."""
        import ray

        return dict(zip(self._where, ray.get(list(self._where.values())), strict=True))

    def wait(self, seconds: float) -> list[Ended]:
        """Wait until a client's run ends, at most `seconds`; raise `ConnectionError` if the coordinator died."""
        import ray

        done, _ = ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [self._result(reference) for reference in done]

    def _result(self, reference: Any) -> Ended:
        import ray

        name = self._running.pop(reference)
        try:
            ray.get(reference)
        except ray.exceptions.RayTaskError as error:  # first: with this cause it is a RayActorError as well
            if isinstance(error.cause, ray.exceptions.RayActorError):
                raise ConnectionError(f"the coordinator was lost, as {name} reports") from error
            if not isinstance(error.cause, SupersededError):
                return Ended(name, error.cause)
            # It was silent, came back, and has noticed that it is excluded before Ray could end it.
            self._lost.add(name)
            return Ended(name, error.cause, lost=True)
        except ray.exceptions.RayError as error:  # its process or its node died, for want of memory too
            self._lost.add(name)
            return Ended(name, error, lost=True)
        return Ended(name)

    def close(self) -> None:
        """Stop the coordinator, which ends all calls to it; keep the client actors that are idle after that."""
        import ray

        ray.kill(self._coordinator)
        _, busy = ray.wait(list(self._running), num_returns=len(self._running), timeout=CLOSE_SECONDS)
        unusable = self._lost.union(self._running[reference] for reference in busy)
        self._pool.stop({self._processes[name] for name in unusable})
        self.session.give_back(self._pool)
        self._running = {}
