"""The only module that imports Ray."""

from __future__ import annotations

import logging
from typing import NamedTuple


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
