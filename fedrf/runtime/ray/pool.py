"""Client actors in a placement group, which reserves the resources of all of them at once."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fedrf.runtime.packing import Node
from fedrf.runtime.placement import Requirements, describe_contention
from fedrf.runtime.ray.actors import ClientActor, RunsFibers
from fedrf.runtime.ray.forked_worker import command
from fedrf.runtime.shortage import describe_shortage

RESERVE_SECONDS = 10.0  # resources of actors that were just stopped take a moment to become free
RECOVER_SECONDS = 120.0  # Ray may need a minute to notice that a node is gone, and starts its processes on another one


def alive_nodes() -> list[Node]:
    """Return the resources of each node of the cluster."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def reserve(requirements: Requirements, wait_seconds: float) -> Any:
    """Return a placement group for the client processes; raise `ValueError` if the cluster cannot provide it."""
    import ray
    from ray.util import placement_group, remove_placement_group

    shortage = describe_shortage(requirements, alive_nodes())
    if shortage and not wait_seconds:
        raise ValueError(shortage)
    group = placement_group(requirements.bundles, requirements.strategy)
    try:
        if group.wait(max(wait_seconds, RESERVE_SECONDS)):
            return group
        total, free = ray.cluster_resources(), ray.available_resources()
        raise ValueError(
            describe_shortage(requirements, alive_nodes()) or describe_contention(requirements, total, free)
        )
    except BaseException:
        remove_placement_group(group)
        raise


def can_fork(gpus: float) -> bool:
    """Return whether client processes can be forks of one process: on a single Linux machine, without GPUs.

    A fork of a process that has initialised CUDA cannot use it. Environments with another interpreter start it.
    """
    import ray

    own = {"env_vars", "working_dir", "py_modules", "config", "worker_process_setup_hook"}
    context = ray.get_runtime_context()
    is_alone = [node["NodeID"] for node in ray.nodes() if node["Alive"]] == [context.get_node_id()]
    return sys.platform == "linux" and not gpus and is_alone and set(context.runtime_env) <= own


@dataclass
class ActorPool:
    """Client actors that run federations with the same requirements, one federation at a time.

    Attributes
    ----------
    requirements
        What the actors were started for.
    group
        The placement group; the actors are in its last bundles.
    actors
        The actors by their process number, which is that of their bundle among the last.
    """

    requirements: Requirements
    group: Any
    actors: dict[int, Any] = field(default_factory=dict)

    def process_of(self, position: int) -> int:
        """Return the number of the process that runs the client at `position`."""
        return position // self.requirements.clients_per_actor

    def start_missing(self, actor_class: type[ClientActor]) -> None:
        """Start an actor in each bundle that has none."""
        environment = {"py_executable": command()} if can_fork(self.requirements.gpus) else None
        for process in set(range(len(self.requirements.nodes))) - set(self.actors):
            self.actors[process] = self._start(actor_class, process, environment)

    def recover(self, actor_class: type[ClientActor]) -> bool:
        """Start an actor for each that was lost; return whether all actors answer: there may be no node for them."""
        import ray

        if len(self.actors) == len(self.requirements.nodes):
            return True
        self.start_missing(actor_class)
        answers = [actor.where.options(max_task_retries=-1).remote() for actor in self.actors.values()]
        return not ray.wait(answers, num_returns=len(answers), timeout=RECOVER_SECONDS)[1]

    def _start(self, actor_class: type[ClientActor], process: int, environment: dict[str, str] | None) -> Any:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        index = self.group.bundle_count - len(self.requirements.nodes) + process
        bundle = dict(self.group.bundle_specs[index])
        each = self.requirements.clients_per_actor
        process_class: Any = actor_class if each == 1 else type(actor_class.__name__, (RunsFibers, actor_class), {})
        actor = ray.remote(process_class).options(
            num_cpus=bundle.pop("CPU", 0),
            num_gpus=bundle.pop("GPU", 0),
            resources=bundle,
            max_concurrency=each,
            max_restarts=-1,  # the driver counts restarts, by client and hour
            scheduling_strategy=PlacementGroupSchedulingStrategy(self.group, index),
            runtime_env=environment,
        )
        return actor.remote()

    def stop(self, processes: Iterable[int]) -> None:
        """Stop some of the actors."""
        import ray

        for process in processes:
            ray.kill(self.actors.pop(process))
