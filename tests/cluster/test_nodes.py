"""One federation over several hosts, with clients where the configuration wants them."""

import json
import sys

import pytest

from tests.cluster.hosts import Hosts
from tests.conftest import TINY

pytestmark = pytest.mark.cluster

# A program of a user on the head: runs a federation and tells where everybody was.
PROGRAM = """
import json, sys
from pathlib import Path
import ray
from fedrf.config.loader import load_config
from fedrf.experiment.run import Experiment
from fedrf.experiment.results import RunFolder
from fedrf.runtime.ray import RayFederation, RaySession

address, out, settings = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
config, where = load_config(None, settings), {}

class Watched(RayFederation):
    def close(self):
        where.update(self.where())
        super().close()

with RaySession(address) as session:
    nodes = {
        node["NodeID"]: next((name for name in ("north", "south") if name in node["Resources"]), "head")
        for node in ray.nodes()
    }
    hosts = len({node["NodeManagerAddress"] for node in ray.nodes()})
    make = lambda *arguments: Watched(session, *arguments)
    result = Experiment(config, RunFolder.create(config, out), False).run(make)
places = {name: nodes[one["node"]] for name, one in where.items()}
print(json.dumps({"finished": result.finished, "hosts": hosts, "where": places}))
"""


@pytest.fixture(scope="module")
def hosts():
    started = Hosts("{}", '{"north": 1}', '{"south": 1}')
    yield started
    started.close()


def run_on_head(hosts, *words):
    process = hosts.run(0, sys.executable, *words)
    out, err = process.communicate(timeout=400)
    return process.returncode, out, err


def test_clients_run_on_the_hosts_that_the_configuration_names(hosts, tmp_path):
    nodes = {"rendered": "north", "textured": "south", "handwritten": "south"}
    settings = {**TINY, "federation.mode": "sync", "resources.nodes": nodes, "resources.cpus_per_client": 0.5}
    code, out, err = run_on_head(hosts, "-c", PROGRAM, hosts.head, tmp_path / "run", json.dumps(settings))
    assert code == 0, err
    told = json.loads(out.splitlines()[-1])
    assert told["finished"]
    assert told["hosts"] == len(set(hosts.addresses))
    assert told["where"]["rendered"] == "north"
    assert told["where"]["textured"] == told["where"]["handwritten"] == "south"
    assert told["where"]["coordinator"] == "head"  # beside the driver, whose run directory it writes to


def test_what_no_host_can_give_is_said_in_one_line(hosts, tmp_path):
    out = tmp_path / "run"
    keys = [f"{key}={json.dumps(value)}" for key, value in TINY.items()]
    wrong = {
        "resources.placement=apart": "not on the nodes where it is wanted",  # four processes, three hosts
        "resources.nodes={street: west}": "no node of the cluster offers that; offered: north, south",
    }
    for key, complaint in wrong.items():
        code, _, err = run_on_head(hosts, "-m", "fedrf", "run", *keys, key, "--address", hosts.head, "--out", out)
        assert code == 2
        assert complaint in err
        assert err.count("\n") == 1
