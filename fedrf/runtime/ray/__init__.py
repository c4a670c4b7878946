"""Federations as Ray actors: the only package of fedrf that imports Ray."""

from fedrf.runtime.ray.actors import ClientActor
from fedrf.runtime.ray.federation import RayFederation
from fedrf.runtime.ray.session import ClusterResources, RaySession, cluster_resources

__all__ = ["ClientActor", "ClusterResources", "RayFederation", "RaySession", "cluster_resources"]
