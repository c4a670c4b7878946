"""How many processes that reserve the same resources fit on the nodes of a cluster, and how large they can be."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Node = Mapping[str, float]  # the resources of one node, as Ray names them
UNIT = 10_000  # Ray counts resources in ten-thousandths
NODE_SHARE = 0.001  # of a node's custom resource: binds a client to the node, and leaves enough for a thousand clients


class Packing(NamedTuple):
    """Processes on the nodes of a cluster that is idle.

    Attributes
    ----------
    nodes
        The resources of each node.
    bound
        For each process, the custom resource of the node that it is bound to, or None.
    apart
        Whether every process needs its own node.
    """

    nodes: Sequence[Node]
    bound: Sequence[str | None]
    apart: bool = False

    def fits(self, cpus: float, gpus: float) -> bool:
        """Return whether all processes fit, with `cpus` and `gpus` for each."""
        return self.room(cpus, gpus) == len(self.bound)

    def room(self, cpus: float, gpus: float) -> int:
        """Return how many of the processes fit, with `cpus` and `gpus` for each."""
        most = 1 if self.apart else len(self.bound)
        free = [min(most, node_room(node, cpus, gpus)) for node in self.nodes]
        placed: list[list[str]] = [[] for _ in self.nodes]
        num_bound = sum(self._place(name, free, placed, set()) for name in self.bound if name)
        return num_bound + min(sum(free) - num_bound, self.bound.count(None))

    def _place(self, name: str, free: Sequence[int], placed: list[list[str]], tried: set[int]) -> bool:
        """Place a bound process, if necessary instead of one that can move to another node (an augmenting path)."""
        for index, node in enumerate(self.nodes):
            if index in tried or name not in node:
                continue
            tried.add(index)
            if len(placed[index]) < free[index]:
                placed[index].append(name)
                return True
            for other in set(placed[index]) - {name}:
                if self._place(other, free, placed, tried):
                    placed[index].remove(other)
                    placed[index].append(name)
                    return True
        return False

    def largest_cpus(self, gpus: float, limit: float = 1.0) -> float:
        """Return the most CPUs, in hundredths, with which all processes fit; 0 if they never do."""
        hundredths = range(1, int(100 * limit + 1e-6) + 1)
        return bisect_left(hundredths, True, key=lambda count: not self.fits(count / 100, gpus)) / 100

    def largest_gpus(self, cpus: float) -> float:
        """Return the largest part of a GPU, at most a whole one, with which all processes fit; 0 if they never do.

        A process gets its share from a single GPU. So if k processes use one, each gets 1/k, rounded down.
        """
        parts = (UNIT // count / UNIT for count in range(1, min(len(self.bound), UNIT) + 1))
        return next((gpus for gpus in parts if self.fits(cpus, gpus)), 0.0)


def node_room(node: Node, cpus: float, gpus: float) -> int:
    """Return how many processes fit on one node."""
    devices, gpu, cpu = int(node.get("GPU", 0)), round(UNIT * gpus), round(UNIT * cpus)
    counts = [round(UNIT * node.get("CPU", 0)) // cpu] if cpu else []
    if gpu:
        counts.append(devices * (UNIT // gpu))
    return min(counts, default=UNIT)
