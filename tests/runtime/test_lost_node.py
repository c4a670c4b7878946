"""A session whose placement group has lost a node continues on the others, with what they have."""

import json
import subprocess
import sys

import psutil
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

# Starts four actors, waits until a node is lost, and starts them again before Ray has noticed the loss.
PROGRAM = """
import sys
import ray
from fedrf.config.schema import ResourcesConfig
from fedrf.runtime.ray import ClientActor, RaySession, pool

pool.RECOVER_SECONDS = 30.0

class LightActor(ClientActor):  # runs no client, so it needs no imports
    def __init__(self):
        pass

class LightSession(RaySession):
    actor_class = LightActor

def start(session):
    pool = session.acquire("abcd", ResourcesConfig(placement="spread"))
    where = ray.get([actor.where.remote() for actor in pool.actors.values()], timeout=120)
    print([pool.requirements.cpus, len({actor["node"] for actor in where})], flush=True)
    return pool

with LightSession(sys.argv[1]) as session:
    first = start(session)
    input()
    first.stop({0})  # the federation stops the actors of the clients that were lost
    session.give_back(first)
    session.give_back(start(session))
"""


def test_the_actors_of_a_lost_node_start_on_the_others_with_smaller_shares(monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        worker = cluster.add_node(num_cpus=2)
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, cluster.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert json.loads(program.stdout.readline()) == [1.0, 2]
        raylet = psutil.Process(worker.all_processes["raylet"][0].process.pid)
        actors = raylet.children(recursive=True)
        worker.kill_raylet()
        psutil.wait_procs(actors, timeout=60)  # until then they answer
        out, err = program.communicate("\n", timeout=300)
        assert program.returncode == 0, err
        printed = [line for line in out.splitlines() if line.startswith("[")]  # Ray prints warnings besides
        assert json.loads(printed[-1]) == [0.5, 1]
    finally:
        cluster.shutdown()
