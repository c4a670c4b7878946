"""The resources that a federation requires of a cluster: one placement group bundle for each client process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

from fedrf.config.schema import ResourcesConfig
from fedrf.runtime.packing import NODE_SHARE, UNIT, Node, Packing

STRATEGIES = {"pack": "PACK", "spread": "SPREAD", "apart": "STRICT_SPREAD"}
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
    def amounts(self) -> tuple[float, float]:
        """The CPUs and GPUs of a process, in Ray's resolution."""
        return round(self.cpus * self.clients_per_actor, 4), round(self.gpus * self.clients_per_actor, 4)

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The resources of each process, in the order of the clients."""
        bundle = {kind: amount for kind, amount in zip(("CPU", "GPU"), self.amounts, strict=True) if amount}
        return [bundle | ({node: NODE_SHARE} if node else {}) for node in self.nodes]

    @property
    def num_clients(self) -> int:
        """The number of clients that the processes have resources for."""
        return self.clients_per_actor * len(self.nodes)

    def within(self, bundle: Mapping[str, float]) -> Requirements:
        """Return the same processes with what a bundle reserves for each of them."""
        each = self.clients_per_actor
        return self._replace(cpus=bundle.get("CPU", 0.0) / each, gpus=bundle.get("GPU", 0.0) / each)

    def packing(self, nodes: Sequence[Node]) -> Packing:
        """Return the processes on the nodes of a cluster."""
        return Packing(nodes, self.nodes, self.strategy == STRATEGIES["apart"])


def compute_requirements(names: Sequence[str], resources: ResourcesConfig, nodes: Sequence[Node]) -> Requirements:
    """Compute what the clients `names` reserve of a cluster with these nodes.

    Of an automatic share, a process gets at most 1, and so much that all processes fit on the nodes. First each gets
    an equal part of a GPU, as large as possible; then CPUs of the nodes that have these parts.

    Raises
    ------
    ValueError
        If `resources.accelerator` names one that clients would not get.
    """
    each = min(len(names), resources.clients_per_actor)
    processes = ceil(len(names) / each)
    bound = tuple(resources.nodes.get(name) for name in names) if resources.nodes else (None,) * processes
    packing = Packing(nodes, bound, resources.placement == "apart")
    cpus = None if resources.cpus_per_client == "auto" else resources.cpus_per_client * each
    if resources.gpus_per_client == "auto":
        gpus = packing.largest_gpus(cpus or MIN_CPUS) or _equal_part(processes, nodes)
        _check_accelerator(resources, gpus)
    else:
        gpus = resources.gpus_per_client * each
    if cpus is None:
        # Ray refuses an empty bundle, so a cluster that has no CPU yet gets a request that is too large for it.
        cpus = max(packing.largest_cpus(gpus), MIN_CPUS)
    return Requirements(cpus / each, gpus / each, each, bound, STRATEGIES[resources.placement])


def _check_accelerator(resources: ResourcesConfig, gpus: float) -> None:
    """Raise a `ValueError` if an accelerator is required, and clients with an automatic share would get none."""
    kind = resources.accelerator
    if kind in ("cuda", "mps") and not gpus and not resources.allow_cpu:
        other = "use --local" if kind == "mps" else "start nodes with GPUs, or set resources.gpus_per_client"
        raise ValueError(
            f"resources.accelerator={kind}: Ray sees no GPU on any node; {other}, or resources.allow_cpu=true to go on "
            "without"
        )


def _equal_part(processes: int, nodes: Sequence[Node]) -> float:
    """Return the share of a GPU if all could be reached by all processes; `describe_shortage` says why they cannot."""
    count = sum(int(node.get("GPU", 0)) for node in nodes)
    return UNIT // ceil(processes / count) / UNIT if count else 0.0


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
        f"{requirements.strategy}: the cluster has enough resources, but what is free is not on the required nodes, "
        "or in parts that are too small; wait longer (resources.wait_seconds), or see resources.placement and "
        "resources.nodes"
    )
