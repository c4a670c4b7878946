"""What the clients of a federation need of a cluster, and where: one bundle of resources for each client process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import NamedTuple

from fedrf.config.schema import ResourcesConfig

STRATEGIES = {"pack": "PACK", "spread": "SPREAD", "apart": "STRICT_SPREAD"}
A_LITTLE = 0.001  # of a node's own resource: enough to bind a client to the node, and for a thousand of them
ROUNDING = 1e-6


class Needs(NamedTuple):
    """What is reserved for one federation, all of it or nothing."""

    cpus: float
    gpus: float
    clients: int
    nodes: tuple[str | None, ...]
    strategy: str
    max_restarts: int

    @property
    def bundles(self) -> list[dict[str, float]]:
        """What each process gets, in the order of the clients."""
        each = {"CPU": round(self.cpus * self.clients, 4), "GPU": round(self.gpus * self.clients, 4)}
        kept = {kind: amount for kind, amount in each.items() if amount}
        return [kept | ({node: A_LITTLE} if node else {}) for node in self.nodes]


def needs(names: Sequence[str], resources: ResourcesConfig, total: Mapping[str, float]) -> Needs:
    """Work out what the clients get of a cluster that has `total`."""
    together = min(len(names), resources.clients_per_actor)
    processes = ceil(len(names) / together)

    def share(wanted: float | str, kind: str) -> float:
        """Return what is wanted, or an equal part of an equal share for each process, at most 1."""
        if wanted != "auto":
            return float(wanted)
        whole: float = min(1.0, floor(100 * total.get(kind, 0.0) / processes) / 100)
        # A cluster without a CPU yet has too little; a bundle without anything, Ray does not know.
        return max(whole, 0.01 if kind == "CPU" else 0.0) / together

    cpus, gpus = share(resources.cpus_per_client, "CPU"), share(resources.gpus_per_client, "GPU")
    if gpus * together > 1 and gpus * together != int(gpus * together):
        raise ValueError(
            f"resources.gpus_per_client={gpus:g} for {together} clients in an actor is {gpus * together:g} GPUs; "
            "Ray takes whole numbers, or less than 1"
        )
    nodes = tuple(resources.nodes.get(name) for name in names) if resources.nodes else (None,) * processes
    return Needs(cpus, gpus, together, nodes, STRATEGIES[resources.placement], resources.max_restarts)


def too_little(wanted: Needs, total: Mapping[str, float]) -> str | None:
    """Say what a cluster that has `total` lacks even when nobody else uses it; None where it suffices."""
    count = wanted.clients * len(wanted.nodes)
    for kind, each in (("CPU", wanted.cpus), ("GPU", wanted.gpus)):
        has = total.get(kind, 0.0)
        if each * count > has + ROUNDING:
            return (
                f"resources.{kind.lower()}s_per_client={each:g}: {count} clients need {each * count:g} {kind}s and "
                f"Ray has {has:g}; at most {floor(1000 * has / count) / 1000:g} each, or fewer data.sources"
            )
    for node in wanted.nodes:
        if node and node not in total:
            own = sorted(kind for kind in total if not _is_rays_own(kind))
            return (
                f"resources.nodes names {node}, and no node of the cluster offers that; "
                + (f"offered: {', '.join(own)}" if own else "start one with")
                + f" (ray start --resources='{{\"{node}\": 1}}')"
            )
    return None


def too_busy(wanted: Needs, total: Mapping[str, float], free: Mapping[str, float]) -> str:
    """Say why there was no room on a cluster that is large enough."""
    for kind, each in (("CPU", wanted.cpus), ("GPU", wanted.gpus)):
        needed = each * wanted.clients * len(wanted.nodes)
        if needed > free.get(kind, 0.0) + ROUNDING:
            return (
                f"resources.{kind.lower()}s_per_client={each:g}: the clients need {needed:g} {kind}s, and of Ray's "
                f"{total.get(kind, 0):g} only {free.get(kind, 0):g} are free; take less, or wait for the others"
            )
    return (
        f"no room for {len(wanted.nodes)} client processes of {wanted.bundles[0]}, placed {wanted.strategy}: the "
        "cluster has as much, but not on the nodes where it is wanted; see resources.placement and resources.nodes"
    )


def _is_rays_own(kind: str) -> bool:
    return kind in ("CPU", "GPU", "memory", "object_store_memory") or kind.startswith(
        ("node:", "accelerator_type:", "bundle_group_", "CPU_group_", "GPU_group_")
    )
