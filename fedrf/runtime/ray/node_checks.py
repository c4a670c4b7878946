"""A small task on every node of a cluster: a matrix product, an exchange, a checkpoint and a small federation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from fedrf.archive import pack, unpack
from fedrf.errors import reason
from fedrf.runtime.node_report import NodeReport, SmallRun, report, write_driver_file, wrote_file
from fedrf.runtime.ray.session import connect

CHECK_SECONDS = 180.0  # the first import of torch on a node can take a minute
GPU_SHARE = 0.0001  # so that a GPU that other clients share is checked too
CALL_SIZE = 50_000  # numbers, as many as a message has
SHARED_SIZE = 1_000_000  # as many as a large aggregate, which goes through the object store


class CheckedNode(NamedTuple):
    """What a node answered.

    Attributes
    ----------
    name
        Address and host name.
    object_store_bytes
        Shared memory that Ray uses there.
    report
        What the node found out; None if it gave no answer.
    problem
        Why there is no answer, or nothing.
    """

    name: str
    object_store_bytes: int
    report: NodeReport | None
    problem: str = ""


class Peer:
    """Stands for the coordinator: answers calls, with an array in the object store of the driver's node."""

    def __init__(self) -> None:
        import ray

        self._shared = ray.put(np.arange(SHARED_SIZE))

    def call(self, content: bytes) -> tuple[bytes, Any]:
        """Return the content and a reference to the array."""
        return content, self._shared


class Examiner:
    """A process on the node that is examined."""

    def examine(self, wants_gpu: bool, folder: Path, name: str, run: SmallRun, peer: Any) -> NodeReport:
        """Exchange data with the driver's node, and report."""
        import ray

        content = pack(np.arange(CALL_SIZE))
        answer, shared = ray.get(peer.call.remote(content))
        if not np.array_equal(unpack(answer), np.arange(CALL_SIZE)):
            raise ValueError("an exchange with the driver's node returned other bytes")
        if not np.array_equal(ray.get(shared), np.arange(SHARED_SIZE)):
            raise ValueError("an array of the driver's node arrived with other values")
        return report(wants_gpu, folder, name, run)


def check_nodes(address: str, run: SmallRun) -> list[CheckedNode]:
    """Run a small task on every node of the cluster at `address` that can hold clients, on a GPU if Ray sees one.

    Parameters
    ----------
    run
        Runs a small federation on a node.
    """
    connect(address)
    import ray

    try:
        nodes = [node for node in ray.nodes() if node["Alive"] and {"CPU", "GPU"} & node["Resources"].keys()]
        with TemporaryDirectory(prefix=".fedrf-doctor-", dir=Path.cwd()) as folder:
            return list(_examine(nodes, Path(folder), run))
    finally:
        ray.shutdown()


def _examine(nodes: list[dict[str, Any]], folder: Path, run: SmallRun) -> Iterator[CheckedNode]:
    import ray

    write_driver_file(folder)
    peer = _start(Peer, ray.get_runtime_context().get_node_id())
    answers = [_start_examination(node, folder, run, peer) for node in nodes]
    ray.wait(answers, num_returns=len(answers), timeout=CHECK_SECONDS)
    for node, answer in zip(nodes, answers, strict=True):
        found, problem = _read(answer)
        if found and found.shares_folder and not wrote_file(folder, node["NodeID"]):
            problem = "the driver cannot read what the node writes into the working folder"
        store = int(node["Resources"].get("object_store_memory", 0))
        yield CheckedNode(f"{node['NodeManagerAddress']} ({node['NodeManagerHostname']})", store, found, problem)


def _start_examination(node: dict[str, Any], folder: Path, run: SmallRun, peer: Any) -> Any:
    """Start the task on a node; return a reference to its answer."""
    wants_gpu = bool(node["Resources"].get("GPU"))
    actor = _start(Examiner, node["NodeID"], GPU_SHARE if wants_gpu else 0)
    return actor.examine.remote(wants_gpu, folder, node["NodeID"], run, peer)


def _start(actor_class: type, node: str, gpus: float = 0) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(actor_class).options(num_cpus=0, num_gpus=gpus, scheduling_strategy=there).remote()


def _read(answer: Any) -> tuple[NodeReport | None, str]:
    """Return a node's report, or why there is none."""
    import ray

    try:
        return ray.get(answer, timeout=0), ""
    except ray.exceptions.GetTimeoutError:
        return None, f"no answer within {CHECK_SECONDS:g} s: its GPUs are in use, it is slow, or it starts no process"
    except ray.exceptions.RayTaskError as error:
        return None, reason(error.cause)
    except ray.exceptions.RayError as error:
        errors = re.findall(r"^\w*Error: .*", str(error), re.MULTILINE)  # of the process, below Ray's own text
        return None, errors[-1] if errors else reason(error)
