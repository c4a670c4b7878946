"""What a cluster lacks for a federation, even when it is idle, and what would fit on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor

from fedrf.runtime.packing import UNIT, Node, Packing
from fedrf.runtime.placement import MIN_CPUS, STRATEGIES, Requirements

LISTED = 8  # nodes in a message


def describe_shortage(requirements: Requirements, nodes: Sequence[Node]) -> str | None:
    """Return why the processes do not fit on these nodes, and what would; None if they fit."""
    for name in requirements.nodes:
        if name and not any(name in node for node in nodes):
            return _no_such_node(name, nodes)
    packing = requirements.packing(nodes)
    if packing.fits(*requirements.amounts):
        return None
    clients = packing.room(*requirements.amounts) * requirements.clients_per_actor
    found = f"nodes with {_amounts('CPU', nodes)}" + (f" and {_amounts('GPU', nodes)}" if requirements.gpus else "")
    choices = [f"at most {clients} clients (fewer data.sources)" if clients > 1 else "", *_choices(requirements, nodes)]
    what_fits = ", or ".join(filter(None, choices)) or "nothing of this kind"
    return f"{requirements.num_clients} clients{_at_fault(requirements, packing)} do not fit on {found}: {what_fits}"


def _no_such_node(name: str, nodes: Sequence[Node]) -> str:
    custom = sorted({kind for node in nodes for kind in node if not _is_predefined(kind)})
    return (
        f"resources.nodes: no node of the cluster offers {name}; "
        f"offered: {', '.join(custom) or 'none'} (ray start --resources='{{\"{name}\": 1}}' offers it)"
    )


def _amounts(kind: str, nodes: Sequence[Node]) -> str:
    """Return what each node has of a resource; nodes have the same order for all resources."""
    ordered = sorted(nodes, key=lambda node: (node.get("GPU", 0), node.get("CPU", 0)), reverse=True)
    listed = [f"{node.get(kind, 0):g}" for node in ordered[:LISTED]] + ["..."] * (len(nodes) > LISTED)
    return f"{', '.join(listed) or 'no'} {kind}s"


def _at_fault(requirements: Requirements, packing: Packing) -> str:
    """Return the settings because of which the processes do not fit, as far as they can be told apart."""
    cpus, gpus = requirements.amounts
    if not packing.fits(0, 0):
        apart = requirements.strategy == STRATEGIES["apart"]
        return " with resources.placement=apart" if apart else " with resources.nodes"
    texts = {"CPU": f"{requirements.cpus:g} CPUs", "GPU": f"{requirements.gpus:g} GPUs"}
    kinds = [kind for kind, fits in (("CPU", packing.fits(0, gpus)), ("GPU", packing.fits(cpus, 0))) if fits]
    return f" of {' and '.join(texts[kind] for kind in kinds or texts)}"


def _choices(requirements: Requirements, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield changes of the configuration with which all clients fit."""
    packing, (cpus, gpus) = requirements.packing(nodes), requirements.amounts
    yield from _smaller_shares(requirements, packing)
    if packing.apart and packing._replace(apart=False).fits(cpus, gpus):
        yield "resources.placement=spread"
    count = None if any(requirements.nodes) else _more_per_actor(requirements, nodes)
    if count:
        yield f"resources.clients_per_actor={count}"


def _smaller_shares(requirements: Requirements, packing: Packing) -> Iterator[str]:
    (cpus, gpus), each = requirements.amounts, requirements.clients_per_actor
    if fewer := packing.largest_cpus(gpus, cpus):
        yield f"resources.cpus_per_client={_each(fewer, each)}"
    if most := packing.largest_gpus(cpus):
        yield f"resources.gpus_per_client={_each(most, each)}"
    elif gpus and packing.fits(cpus, 0):
        yield "resources.gpus_per_client=0"
    elif not fewer and (most := packing.largest_gpus(MIN_CPUS)):
        fewer = packing.largest_cpus(most, cpus)
        yield f"resources.gpus_per_client={_each(most, each)} with resources.cpus_per_client={_each(fewer, each)}"


def _each(amount: float, clients: int) -> str:
    """Return the share of one of several clients, rounded down to Ray's resolution."""
    return f"{floor(UNIT * amount / clients + 1e-6) / UNIT:g}"


def _more_per_actor(requirements: Requirements, nodes: Sequence[Node]) -> int | None:
    """Return how many clients must share a process so that all fit without smaller shares."""
    fewest_clients = requirements.num_clients - requirements.clients_per_actor + 1  # the last process may have fewer
    for count in range(requirements.clients_per_actor + 1, fewest_clients + 1):
        processes: tuple[str | None, ...] = (None,) * ceil(requirements.num_clients / count)
        changed = requirements._replace(clients_per_actor=count, nodes=processes)
        cpus, gpus = changed.amounts
        if gpus <= 1 and changed.packing(nodes).fits(cpus, gpus):
            return count
    return None


def _is_predefined(kind: str) -> bool:
    """Tell Ray's own resources from the custom resources of nodes."""
    return kind in ("CPU", "GPU", "memory", "object_store_memory") or kind.startswith(
        ("node:", "accelerator_type:", "bundle_group_", "CPU_group_", "GPU_group_")
    )
