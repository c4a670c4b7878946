"""Clients that share GPUs start on real Ray nodes, one after the other with more clients and more nodes."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ray

# Starts an actor for each client, and prints which GPU of which node each has.
PROGRAM = """
import json, sys
import ray
from fedrf.config.schema import ResourcesConfig
from fedrf.runtime.ray import ClientActor, RaySession

class LightActor(ClientActor):  # runs no client, so it needs no imports
    def __init__(self):
        pass

class LightSession(RaySession):
    actor_class = LightActor

with LightSession(sys.argv[1]) as session:
    pool = session.acquire([f"c{number}" for number in range(int(sys.argv[2]))], ResourcesConfig())
    where = ray.get([actor.where.remote() for actor in pool.actors.values()], timeout=120)
    session.give_back(pool)
print(json.dumps([[actor["node"], *actor["gpus"]] for actor in where]))
"""


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 2})
    yield started
    started.shutdown()


def gpus_of_clients(address, clients):
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, address, str(clients)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    places = [tuple(place) for place in json.loads(done.stdout.splitlines()[-1])]
    assert all(len(place) == 2 for place in places)  # one GPU each
    return sorted(places.count(place) for place in set(places))


def test_clients_that_are_no_multiple_of_the_gpus_all_start(cluster):
    for clients, gpus in ((3, 2), (4, 3), (6, 4)):
        if gpus > 2:
            cluster.add_node(num_cpus=2, num_gpus=1)
        counts = gpus_of_clients(cluster.address, clients)
        assert max(counts) == 2  # no GPU has more than it must have
