"""One federation on several hosts, with clients on the hosts that the configuration names."""

import json
import sys

import pytest

from tests.cluster.hosts import Hosts
from tests.conftest import TINY

pytestmark = pytest.mark.cluster

# A user's program on the head: runs a federation and prints on which node each actor was.
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

class ObservedFederation(RayFederation):
    def close(self):
        where.update(self.where())
        super().close()

with RaySession(address) as session:
    nodes = {
        node["NodeID"]: next((name for name in ("north", "south") if name in node["Resources"]), "head")
        for node in ray.nodes()
    }
    hosts = len({node["NodeManagerAddress"] for node in ray.nodes()})
    make = lambda *arguments: ObservedFederation(session, *arguments)
    result = Experiment(config, RunFolder.create(config, out), False).run(make)
names = {name: nodes[process["node"]] for name, process in where.items()}
print(json.dumps({"finished": result.finished, "hosts": hosts, "nodes": names}))
"""


@pytest.fixture(scope="module")
def hosts():
    started = Hosts("{}", '{"north": 1}', '{"south": 1}')
    yield started
    started.close()


def test_clients_run_on_the_hosts_that_the_configuration_names(hosts, tmp_path):
    nodes = {"rendered": "north", "textured": "south", "handwritten": "south"}
    settings = {
        **TINY,
        "data.sources": ["rendered", "textured"],
        "federation.mode": "sync",
        "resources.nodes": nodes,
        "resources.cpus_per_client": 0.5,
    }
    process = hosts.run(0, sys.executable, "-c", PROGRAM, hosts.head, tmp_path / "run", json.dumps(settings))
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["finished"]
    assert result["hosts"] == len(set(hosts.addresses))
    # The coordinator runs on the node of the driver, because it writes to the run directory.
    assert result["nodes"] == {**nodes, "coordinator": "head"}


def test_resources_that_no_host_has_are_reported_in_one_line(hosts, tmp_path):
    keys = [f"{key}={json.dumps(value)}" for key, value in TINY.items()]
    messages = {
        "resources.placement=apart": "4 clients with resources.placement=apart do not fit on nodes with 2, 2, 2 CPUs",
        "resources.nodes={street: west}": "no node of the cluster offers west; offered: north, south",
    }
    command = ["-m", "fedrf", "run", *keys, "--address", hosts.head]
    processes = [
        hosts.run(0, sys.executable, *command, key, "--out", tmp_path / f"run{number}")
        for number, key in enumerate(messages)
    ]
    for process, message in zip(processes, messages.values(), strict=True):
        _, err = process.communicate(timeout=400)
        assert process.returncode == 2
        assert message in err
        assert err.count("\n") == 1


def test_doctor_exchanges_data_with_every_host(hosts):
    process = hosts.run(0, sys.executable, "-m", "fedrf", "doctor", "--address", hosts.head, "--json")
    out, err = process.communicate(timeout=400)
    checks = {check["name"]: check for check in json.loads(out) if check["name"].startswith("node ")}
    assert {name.split()[1] for name in checks} == set(hosts.addresses), err
    assert {check["status"] for check in checks.values()} == {"ok"}, checks
