"""The resources that a federation requires of a cluster: one placement group bundle for each client process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import NamedTuple

from fedrf.config.schema import ResourcesConfig

STRATEGIES = {"pack": "PACK", "spread": "SPREAD", "apart": "STRICT_SPREAD"}
NODE_SHARE = 0.001  # of a node's custom resource: binds a client to the node, and leaves enough for a thousand clients
MIN_CPUS = 0.01
TOLERANCE = 1e-6


class Requirements(NamedTuple):
    """What one federation reserves, all of it or nothing.

    Attributes
    ----------
    cpus, gpus
        For each client.
    clients_per_actor
        How many clients share a process.
    nodes
        For each process, the custom resource of the node that it is bound to, or None.
    strategy
        Ray's placement strategy.
    """

    cpus: float
    gpus: float
    clients_per_actor: int
    nodes: tuple[str | None, ...]
    strategy: str

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The resources of each process, in the order of the clients."""
        amounts = {
            "CPU": round(self.cpus * self.clients_per_actor, 4),
            "GPU": round(self.gpus * self.clients_per_actor, 4),
        }
        bundle = {kind: amount for kind, amount in amounts.items() if amount}
        return [bundle | ({node: NODE_SHARE} if node else {}) for node in self.nodes]

    @property
    def num_clients(self) -> int:
        """The number of clients that the processes have resources for."""
        return self.clients_per_actor * len(self.nodes)


def compute_requirements(names: Sequence[str], resources: ResourcesConfig, total: Mapping[str, float]) -> Requirements:
    """Compute what the clients `names` reserve of a cluster with the resources `total`."""
    clients_per_actor = min(len(names), resources.clients_per_actor)
    processes = ceil(len(names) / clients_per_actor)

    def per_client(value: float | str, kind: str) -> float:
        """Return `value`; for "auto", an equal share of the cluster, at most 1 for each process."""
        if value != "auto":
            return float(value)
        share: float = min(1.0, floor(100 * total.get(kind, 0.0) / processes) / 100)
        # Ray refuses an empty bundle, so a cluster that has no CPU yet gets a request that is too large for it.
        return max(share, MIN_CPUS if kind == "CPU" else 0.0) / clients_per_actor

    cpus, gpus = per_client(resources.cpus_per_client, "CPU"), per_client(resources.gpus_per_client, "GPU")
    gpus_per_actor = gpus * clients_per_actor
    if gpus_per_actor > 1 and gpus_per_actor != int(gpus_per_actor):
        raise ValueError(
            f"resources.gpus_per_client={gpus:g} with {clients_per_actor} clients in an actor is {gpus_per_actor:g} "
            "GPUs; Ray accepts whole numbers, or less than 1"
        )
    nodes = tuple(resources.nodes.get(name) for name in names) if resources.nodes else (None,) * processes
    strategy = STRATEGIES[resources.placement]
    return Requirements(cpus, gpus, clients_per_actor, nodes, strategy)


def describe_shortage(requirements: Requirements, total: Mapping[str, float]) -> str | None:
    """Return what a cluster with the resources `total` lacks even when it is idle; None if it has enough."""
    count = requirements.num_clients
    for kind, each in (("CPU", requirements.cpus), ("GPU", requirements.gpus)):
        available = total.get(kind, 0.0)
        if each * count > available + TOLERANCE:
            return (
                f"resources.{kind.lower()}s_per_client={each:g}: {count} clients need {each * count:g} {kind}s and "
                f"Ray has {available:g}; at most {floor(1000 * available / count) / 1000:g} each, "
                "or fewer data.sources"
            )
    for node in requirements.nodes:
        if node and node not in total:
            custom = sorted(kind for kind in total if not _is_predefined(kind))
            return (
                f"resources.nodes: no node of the cluster offers {node}; "
                f"offered: {', '.join(custom) or 'none'} (ray start --resources='{{\"{node}\": 1}}' offers it)"
            )
    return None


def describe_contention(requirements: Requirements, total: Mapping[str, float], free: Mapping[str, float]) -> str:
    """Return why a cluster that is large enough could not reserve the resources in time."""
    for kind, each in (("CPU", requirements.cpus), ("GPU", requirements.gpus)):
        needed = each * requirements.num_clients
        if needed > free.get(kind, 0.0) + TOLERANCE:
            return (
                f"resources.{kind.lower()}s_per_client={each:g}: the clients need {needed:g} {kind}s, and of Ray's "
                f"{total.get(kind, 0):g} only {free.get(kind, 0):g} are free; use a smaller value, or wait longer "
                "(resources.wait_seconds)"
            )
    return (
        f"{len(requirements.nodes)} client processes of {requirements.bundles[0]} cannot be placed with "
        f"{requirements.strategy}: the cluster has enough resources, but not on the required nodes; "
        "see resources.placement and resources.nodes"
    )


def _is_predefined(kind: str) -> bool:
    """Tell Ray's own resources from the custom resources of nodes."""
    return kind in ("CPU", "GPU", "memory", "object_store_memory") or kind.startswith(
        ("node:", "accelerator_type:", "bundle_group_", "CPU_group_", "GPU_group_")
    )
