"""Federations as Ray actors: the only package of fedrf that imports Ray."""

from fedrf.runtime.ray.actors import ClientActor
from fedrf.runtime.ray.address import check_address
from fedrf.runtime.ray.federation import RayFederation
from fedrf.runtime.ray.node_checks import CheckedNode, check_nodes
from fedrf.runtime.ray.session import ClusterResources, RaySession, cluster_resources
from fedrf.runtime.ray.side_by_side import run_side_by_side

__all__ = [
    "CheckedNode",
    "ClientActor",
    "ClusterResources",
    "RayFederation",
    "RaySession",
    "check_address",
    "check_nodes",
    "cluster_resources",
    "run_side_by_side",
]
