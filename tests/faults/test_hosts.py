"""A host of a cluster that dies, or whose network is cut for a while or for good."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import fedrf
from fedrf.experiment.results import RunFolder
from tests.cluster.hosts import Hosts, ip
from tests.conftest import SYNC, final_weights

pytestmark = [pytest.mark.cluster, pytest.mark.endurance]
SETTINGS = {
    **SYNC,
    "train.rounds": 40,
    "federation.delays": dict.fromkeys(("rendered", "textured", "street", "handwritten"), 0.25),
    "federation.deadline": 10,
    "resources.cpus_per_client": 0.5,
    "resources.placement": "spread",
    "resources.max_restarts": 10,
    "resources.wait_seconds": 60,
}
CUT_SECONDS = 20


@pytest.fixture
def hosts():
    started = Hosts("{}", "{}", "{}")
    yield started
    started.close()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    settings = {**SETTINGS, "federation.delays": {}}
    return final_weights(fedrf.run(None, settings, out=tmp_path_factory.mktemp("expected") / "run", local=True))


def kill(hosts):
    """Kill all processes of a host."""
    for process in ip("netns", "pids", hosts.names[1]).stdout.split():
        os.kill(int(process), signal.SIGKILL)


def cut(hosts):
    """Cut a host off for good."""
    ip("-n", hosts.names[0], "link", "set", "to1", "down")


def cut_for_a_while(hosts):
    cut(hosts)
    time.sleep(CUT_SECONDS)
    ip("-n", hosts.names[0], "link", "set", "to1", "up")


def start(hosts, out, mode):
    """Start a run and wait until it has saved some versions."""
    keys = [f"{key}={json.dumps(value)}" for key, value in {**SETTINGS, "federation.mode": mode}.items()]
    process = hosts.run(0, sys.executable, "-m", "fedrf", "run", *keys, "--address", hosts.head, "--out", out)
    until = time.monotonic() + 200
    while not list(out.glob("checkpoints/coordinator/*5.safetensors")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.05)
    return process


def finish(process, out):
    """Wait until a run has ended well; return its final weights."""
    try:
        _, err = process.communicate(timeout=400)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        pytest.fail(f"the run hangs: {err}\n{(out / 'run.log').read_text()}")
    assert process.returncode == 0, err
    folder = RunFolder(out)
    assert folder.read_summary()["status"] == "finished"
    return {path.parent.name: path.read_bytes() for path in out.glob("checkpoints/*/final.safetensors")}


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("fault", [kill, cut, cut_for_a_while])
def test_a_run_goes_on_without_a_host(hosts, tmp_path, expected, fault, mode):
    if not hosts.isolated:
        pytest.skip("needs network namespaces")
    process = start(hosts, tmp_path / "run", mode)
    fault(hosts)
    weights = finish(process, tmp_path / "run")
    if mode == "sync":
        assert weights == expected


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_host_without_the_run_folder_is_lost_for_good(tmp_path, expected, mode):
    """Its clients go on elsewhere from checkpoints that had crossed to the driver's run directory."""
    (tmp_path / "runs").mkdir()
    hosts = Hosts("{}", "{}", hidden=tmp_path / "runs")
    try:
        if not hosts.isolated:
            pytest.skip("needs network namespaces")
        process = start(hosts, tmp_path / "runs/run", mode)
        kill(hosts)
        weights = finish(process, tmp_path / "runs/run")
    finally:
        hosts.close()
    assert set(weights) == set(expected)
    if mode == "sync":
        assert weights == expected
