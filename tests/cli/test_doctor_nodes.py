"""What `fedrf doctor` says about the nodes of a cluster."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch

import fedrf
from fedrf.cli.doctor_nodes import SMALL_RUN, problem_of_small_run, verdict
from fedrf.federation.checkpoints import CoordinatorFiles
from fedrf.models import devices
from fedrf.runtime.node_report import NodeReport, report, versions, write_driver_file, wrote_file
from fedrf.runtime.ray import CheckedNode

VERSIONS = {"python": "3.11.9", "fedrf": "1.0", "torch": "2.14.1", "ray": "2.60.0"}
GOOD = NodeReport("NVIDIA L4, 24 GB", "", "580.65", "13.0", VERSIONS, 3 * 10**9, "/cache", 10**11, True, "")


def check(**changed):
    node = CheckedNode("10.0.0.2 (gpu-1)", 2 * 10**9, GOOD._replace(**changed))
    return verdict(node, VERSIONS)


def test_a_good_node_shows_what_it_has():
    shown = check()
    assert (shown.name, shown.status, shown.advice) == ("node 10.0.0.2 (gpu-1)", "ok", "")
    assert shown.found == (
        "NVIDIA L4, 24 GB, driver 580.65, CUDA 13.0; torch 2.14.1; /dev/shm 3.0 GB; 100 GB free in /cache; working "
        "folder shared with the driver"
    )
    assert check(shares_folder=False).found.endswith("working folder not shared with the driver")


@pytest.mark.parametrize(
    ("changed", "found", "advice"),
    [
        (
            {"device": "", "device_problem": "The driver is too old", "driver": "535.1"},
            "no usable GPU: The driver is too old (driver 535.1, torch 2.14.1 for CUDA 13.0)",
            "the node needs a driver >= 580",
        ),
        (
            {"device": "", "device_problem": "not compiled with CUDA", "driver": "", "cuda": ""},
            "no usable GPU: not compiled with CUDA (driver none, torch 2.14.1 for CPUs only)",
            "the node needs wheels of torch with CUDA",
        ),
        ({"device": "CPU", "has_unused_gpu": True}, "Ray sees no GPU, and the node has one", "--num-gpus=0"),
        ({"run_problem": "out of memory"}, "a small run failed: out of memory", "fedrf run --local train.rounds=2"),
        ({"device_problem": "a matrix product has a relative error of 0.5"}, "relative error of 0.5", "replace"),
        ({"versions": VERSIONS | {"fedrf": "0.9"}}, "fedrf 0.9, the driver has 1.0", "install fedrf 1.0"),
        ({"shm_bytes": 64 * 2**20}, "/dev/shm has 0.1 GB, Ray's object store 2.0", "--shm-size"),
        ({"cache_free_bytes": 10**9}, "1 GB free in /cache", "FEDRF_CACHE"),
    ],
)
def test_a_problem_of_a_node_is_shown_with_what_to_do(changed, found, advice):
    shown = check(**changed)
    assert shown.status == "problem"
    assert found in shown.found
    assert advice in shown.advice


def test_a_small_federation_runs_on_a_device_that_works(tmp_path):
    assert problem_of_small_run("cpu") == ""
    write_driver_file(tmp_path)
    found = report(False, tmp_path, "node", run=lambda accelerator: f"no {accelerator}")
    assert found.run_problem == "no cpu"


def test_a_small_federation_exchanges_messages_and_writes_checkpoints(tmp_path):
    result = fedrf.run(None, {**SMALL_RUN, "federation.checkpoint_seconds": 0}, out=tmp_path / "run", local=True)
    assert result.summary["rounds"] == 2
    assert CoordinatorFiles(result.folder).newest >= 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_small_federation_that_fails_is_a_problem():
    assert "resources.accelerator=cuda" in problem_of_small_run("cuda")


def test_all_problems_of_a_node_are_in_its_line():
    shown = check(shm_bytes=0, cache_free_bytes=0, versions=VERSIONS | {"ray": "2.0"})
    assert shown.found.count("; ") == shown.advice.count("; ") == 2


def test_a_node_without_an_answer_has_a_problem():
    shown = verdict(CheckedNode("10.0.0.2 (gpu-1)", 0, None, "no answer"), VERSIONS)
    assert (shown.status, shown.found) == ("problem", "no answer")
    assert shown.advice


def test_a_node_knows_whether_it_sees_the_folder_of_the_driver(tmp_path):
    write_driver_file(tmp_path)
    found = report(False, tmp_path, "node1")
    assert (found.device, found.device_problem, found.shares_folder) == ("CPU", "", True)
    assert found.versions == versions()
    assert wrote_file(tmp_path, "node1")
    (tmp_path / "elsewhere").mkdir()
    assert not report(False, tmp_path / "elsewhere", "node2").shares_folder
    assert not report(False, tmp_path / "nowhere", "node2").shares_folder
    assert not wrote_file(tmp_path, "node2")


@pytest.mark.parametrize(("wants_gpu", "has_device", "driver"), product((True, False), (True, False), ("", "580.65")))
def test_a_gpu_that_ray_does_not_see_is_reported(tmp_path, monkeypatch, wants_gpu, has_device, driver):
    monkeypatch.setattr(devices, "has_nvidia_device", lambda: has_device)
    monkeypatch.setattr(devices, "driver_version", lambda: driver)
    found = report(wants_gpu, tmp_path, "node")
    assert found.has_unused_gpu == (not wants_gpu and (has_device or driver != ""))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_torch_cannot_use_is_no_gpu(tmp_path):
    found = report(True, tmp_path, "node1")
    assert found.device == ""
    assert found.device_problem


# The command on real nodes.


@pytest.fixture(scope="module", autouse=True)
def environment():
    """Commands and nodes use this fedrf, in any folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        patch.setenv("WANDB_MODE", "offline")
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


def started_cluster(*workers):
    from ray.cluster_utils import Cluster

    # Small object stores: the checks would find that several of the default size do not fit into /dev/shm.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
    for worker in workers:
        cluster.add_node(num_cpus=1, object_store_memory=10**8, **worker)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def cpu_nodes(environment):
    yield from started_cluster({})


@pytest.fixture(scope="module")
def gpu_nodes(environment, tmp_path_factory):
    """A node with a GPU that only Ray knows, and one that has another fedrf too."""
    other = tmp_path_factory.mktemp("other")
    (other / "fedrf").mkdir()
    (other / "fedrf/__init__.py").touch()
    yield from started_cluster({"num_gpus": 2}, {"num_gpus": 1, "env_vars": {"PYTHONPATH": str(other)}})


def doctor(cluster, folder, program=("-m", "fedrf")):
    """Return the lines for the cluster and its nodes, and the exit code."""
    done = subprocess.run(
        [sys.executable, *program, "doctor", "--address", cluster.address, "--json"],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=folder,
    )
    assert done.stdout, done.stderr
    checks = [check for check in json.loads(done.stdout) if check["name"].startswith(("ray", "node"))]
    return checks[1], checks[2:], done.returncode


@pytest.mark.ray
def test_nodes_with_cpus_are_ok(cpu_nodes, tmp_path):
    cluster, nodes, code = doctor(cpu_nodes, tmp_path)
    assert cluster["found"].startswith("2 nodes, 2 CPUs, 0 GPUs")
    assert [node["status"] for node in nodes] == ["ok", "ok"], nodes
    assert all(node["found"].startswith("CPU; torch") for node in nodes)
    assert all(node["found"].endswith("working folder shared with the driver") for node in nodes)
    assert code == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.ray
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_ray_offers_and_torch_cannot_use_fails(gpu_nodes, tmp_path):
    cluster, nodes, code = doctor(gpu_nodes, tmp_path)
    assert cluster["found"].startswith("3 nodes, 3 CPUs, 3 GPUs")
    head, *workers = sorted(nodes, key=lambda node: node["status"])
    assert (head["status"], head["found"].partition(";")[0]) == ("ok", "CPU")
    assert [node["status"] for node in workers] == ["problem", "problem"]
    unusable, other = sorted((node["found"] for node in workers), reverse=True)
    assert unusable.startswith("no usable GPU: ")
    assert "torch" in unusable
    assert other.startswith("ModuleNotFoundError: No module named 'fedrf")
    assert all(node["advice"] for node in workers)
    assert code == 1


HOLD_GPUS = """
import sys, ray
ray.init(sys.argv[1], namespace="test", log_to_driver=False)
class Holder:
    def ready(self):
        return True
holder = ray.remote(Holder).options(num_gpus=2, lifetime="detached", name="holder").remote()
assert ray.get(holder.ready.remote())
"""
IMPATIENT = """
import sys
from fedrf.runtime.ray import node_checks
node_checks.CHECK_SECONDS = 5
from fedrf.cli.app import main
sys.argv = ["fedrf", *sys.argv[1:]]
main()
"""


@pytest.mark.ray
def test_a_node_whose_gpus_are_in_use_is_not_waited_for_forever(gpu_nodes, tmp_path):
    subprocess.run([sys.executable, "-c", HOLD_GPUS, gpu_nodes.address], check=True, timeout=200)
    _, nodes, code = doctor(gpu_nodes, tmp_path, ("-c", IMPATIENT))
    assert any(node["found"].startswith("no answer within 5 s: its GPUs are in use") for node in nodes)
    assert code == 1
