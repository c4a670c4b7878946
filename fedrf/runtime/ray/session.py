"""A connection to a Ray cluster, with client actors that are kept between runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from fedrf.config.schema import Config, ResourcesConfig
from fedrf.data.domains import clients_of, domains_of
from fedrf.errors import reason
from fedrf.runtime.placement import Requirements, compute_requirements
from fedrf.runtime.ray.actors import ClientActor
from fedrf.runtime.ray.address import check_address, no_answer
from fedrf.runtime.ray.auth_token import keep_token_private
from fedrf.runtime.ray.pool import ActorPool, alive_nodes, reserve


class ClusterResources(NamedTuple):
    """What a Ray cluster offers, summed over its nodes."""

    nodes: int
    cpus: float
    gpus: float
    memory_bytes: float


def cluster_resources(address: str) -> ClusterResources:
    """Return what the Ray cluster at `address` offers; raise `ValueError` if it does not answer."""
    connect(address)
    import ray

    try:
        total = ray.cluster_resources()
        alive = [node for node in ray.nodes() if node["Alive"]]
        return ClusterResources(len(alive), total.get("CPU", 0), total.get("GPU", 0), total.get("memory", 0))
    finally:
        ray.shutdown()


def connect(address: str, **settings: Any) -> None:
    """Connect to the cluster at `address`, or start Ray on this machine if it is "local"."""
    check_address(address)
    import ray  # takes seconds, and most commands do not need it

    try:
        if address == "local":
            keep_token_private()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **settings)
    except Exception as error:
        if address == "local":
            raise ConnectionError(f"Ray cannot be started on this machine: {reason(error)}") from error
        raise no_answer(address, reason(error)) from error


class RaySession:
    """A connection to Ray that keeps client actors between runs, because starting one takes seconds of imports.

    Parameters
    ----------
    address
        A Ray cluster; default $RAY_ADDRESS, else a new Ray instance on this machine. Ignored if this process is
        already connected.
    group
        A placement group whose last bundles are reserved for the client processes. Default: each pool of actors
        reserves its own.
    """

    actor_class = ClientActor

    _idle: ActorPool | None

    def __init__(self, address: str | None = None, group: Any = None) -> None:
        import ray

        self._owns_connection = not ray.is_initialized()
        if self._owns_connection:
            address = address or os.environ.get("RAY_ADDRESS") or "local"
            settings: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
            connect(address, **settings)
        self._group, self._idle = group, None

    def __enter__(self) -> RaySession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def acquire(self, names: Sequence[str], resources: ResourcesConfig) -> ActorPool:
        """Return actors for the clients `names`: the idle ones if their requirements are the same, else new ones."""
        requirements = self._requirements(names, resources)
        if not self._can_reuse(requirements):
            self.stop_idle()
            requirements = self._requirements(names, resources)  # a node may be gone by now
        pool, self._idle = self._idle, None
        if pool is None:
            pool = ActorPool(requirements, self._group or reserve(requirements, resources.wait_seconds))
        pool.start_missing(self.actor_class)
        return pool

    def _requirements(self, names: Sequence[str], resources: ResourcesConfig) -> Requirements:
        """Return what the clients require; in a given group, what its bundles have.

        A trial that is continued may have been configured for a larger cluster.
        """
        requirements = compute_requirements(names, resources, alive_nodes())
        return requirements if self._group is None else requirements.within(self._group.bundle_specs[-1])

    def _can_reuse(self, requirements: Requirements) -> bool:
        """Return whether the idle actors are those that are required, and each of them has a node."""
        pool = self._idle
        if pool is None or pool.requirements != requirements:
            return False
        return self._group is not None or pool.recover(self.actor_class)

    def prepare(self, names: Sequence[str], resources: ResourcesConfig) -> None:
        """Start the actors of the next run; raise `ValueError` if their resources cannot be reserved."""
        self.give_back(self.acquire(names, resources))

    def check_files(self, config: Config) -> None:
        """Raise a `ValueError` if the files of a client are not what it needs, on the node where it will run."""
        import ray

        assert self._idle is not None  # after `prepare`
        sources, target = clients_of(config)
        names, content = (*sources, target), config.model_dump(mode="json")
        # In each process once for each domain, of which many clients may have a part.
        once = {(self._idle.process_of(index), domains_of(config, name)): name for index, name in enumerate(names)}
        checks = [self._idle.actors[process].check_files.remote(content, name) for (process, _), name in once.items()]
        for name, problem in zip(once.values(), ray.get(checks), strict=True):
            if problem:
                raise ValueError(f"{name}: {problem}")

    def give_back(self, pool: ActorPool) -> None:
        """Keep the actors of a run that has ended for the next run."""
        self._idle = pool

    def check_resources(self, names: Sequence[str], resources: ResourcesConfig) -> Requirements:
        """Return the requirements of the clients `names`; raise `ValueError` if they cannot be reserved now."""
        from ray.util import remove_placement_group

        requirements = compute_requirements(names, resources, alive_nodes())
        remove_placement_group(reserve(requirements, resources.wait_seconds))
        return requirements

    def stop_idle(self) -> None:
        """Stop idle actors, so that others can use their resources."""
        from ray.util import remove_placement_group

        if self._idle is not None:
            self._idle.stop(list(self._idle.actors))
            if self._idle.group is not self._group:
                remove_placement_group(self._idle.group)
            self._idle = None

    def close(self) -> None:
        """Stop what this session started."""
        import ray

        self.stop_idle()
        if self._owns_connection:
            ray.shutdown()
