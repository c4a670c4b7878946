"""Federations as Ray actors: the same numbers as in one process, devices, and recovery from lost processes.

Starting client actors takes longer than most of these runs. Tests that can use the actors of the test before them
therefore come first; those that need the resources for themselves come last.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
import time

import psutil
import pytest
import ray
import torch

import fedrf
from fedrf.cli.app import main as fedrf_main
from fedrf.config.loader import load_config
from fedrf.config.schema import ResourcesConfig
from fedrf.errors import RunFailedError
from fedrf.experiment.results import RunFolder
from fedrf.experiment.run import Experiment
from fedrf.ownership import Fence
from fedrf.protocol.message import BadMessageError
from fedrf.runtime.ray import ClientActor, RayFederation, RaySession, check_address
from tests.conftest import TINY, final_weights
from tests.data.layouts import images
from tune.cli import main as tune_main

pytestmark = pytest.mark.ray
SYNC = {**TINY, "federation.mode": "sync", "federation.checkpoint_seconds": 0, "train.rounds": 12}
# Slow enough to interrupt a run before it ends; a delay changes no number.
SLOW = {**SYNC, "federation.delays": {"rendered": 0.25}}
# Two processes without a GPU: they fit beside the four of the other runs.
TWO_ACTORS = {"resources.clients_per_actor": 3, "resources.gpus_per_client": 0}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The final weights of a run in threads that nothing interrupts."""
    return final_weights(fedrf.run(None, SYNC, out=tmp_path_factory.mktemp("expected") / "run", local=True))


@pytest.fixture(scope="module")
def two_actors(ray_session):
    """Keep the actors of runs with `TWO_ACTORS`, on the same Ray as `ray_session`."""
    with RaySession() as session:
        yield session


class FaultyFederation(RayFederation):
    """A federation that calls `fault` once, when a client has reached round 4."""

    def __init__(self, fault, *arguments):
        super().__init__(*arguments)
        self.fault = fault

    def call(self, name, *arguments):
        answer = super().call(name, *arguments)
        if name == "poll" and self.fault and max(answer.rounds.values()) >= 4:
            fault, self.fault = self.fault, None
            fault(self)
        return answer


def run_with_fault(session, settings, out, fault, federation_class=FaultyFederation):
    """Run with a fault in the first federation; return the result and all federations that were started."""
    config = load_config(None, settings)
    started = []

    def make(*arguments):
        started.append(federation_class(None if started else fault, session, *arguments))
        return started[-1]

    with RunFolder.create(config, out) as folder:
        return Experiment(config, folder, False).run(make), started


def kill(name):
    """Return a fault that kills the process of a client or of the coordinator."""
    return lambda federation: os.kill(federation.where()[name]["pid"], signal.SIGKILL)


def rounds_of(folder, client):
    return [row["round"] for row in RunFolder(folder).rows() if row["client"] == client and "loss" in row]


def test_actors_and_threads_give_the_same_bits(ray_session, tmp_path, expected):
    for folder in (tmp_path / "new actors", tmp_path / "idle actors"):
        assert final_weights(fedrf.run(None, SYNC, out=folder, session=ray_session)) == expected


@pytest.mark.parametrize(
    ("name", "reason"), [("textured", "textured was lost"), ("coordinator", "coordinator was lost")]
)
def test_sync_run_ends_with_the_same_bits_after_a_kill(ray_session, tmp_path, expected, name, reason):
    result, started = run_with_fault(ray_session, SLOW, tmp_path / "run", kill(name))
    assert result.finished
    assert len(started) == 2
    assert reason in result.summary["failures"][0]
    assert final_weights(result) == expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_reserved_gpu_that_torch_cannot_use_fails_the_run_unless_that_is_allowed(ray_session, tmp_path):
    """Ray is told of GPUs that do not exist, as if their driver were too old."""
    keys = {**SYNC, "train.rounds": 2, "resources.accelerator": "auto"}
    with pytest.raises(RunFailedError, match=r"torch has no accelerator that it can use \(driver .*allow_cpu=true"):
        fedrf.run(None, keys, out=tmp_path / "refused", session=ray_session)
    allowed = fedrf.run(None, {**keys, "resources.allow_cpu": True}, out=tmp_path / "allowed", session=ray_session)
    assert {place["device"] for place in allowed.summary["placement"].values()} == {"cpu"}


class RejoinedFederation(FaultyFederation):
    """Stops the run when `rendered` was lost and has taken part again in six rounds, however long its restart took."""

    lost_in = None

    def call(self, name, *arguments):
        answer = super().call(name, *arguments)
        if name == "poll":
            if self.lost_in is None and "rendered" not in answer.present:
                self.lost_in = answer.rounds["rendered"]
            elif self.lost_in is not None and answer.rounds["rendered"] > self.lost_in + 5:
                super().call("stop")
        return answer


def test_async_client_that_is_lost_rejoins_without_stopping_the_others(ray_session, tmp_path):
    delays = dict.fromkeys(("rendered", "textured", "street"), 0.2)
    settings = {**SLOW, "federation.mode": "async", "train.rounds": 2000, "federation.delays": delays}
    result, started = run_with_fault(ray_session, settings, tmp_path / "run", kill("rendered"), RejoinedFederation)
    assert len(started) == 1
    assert any("rendered left in round" in failure for failure in result.summary["failures"])
    others = rounds_of(result.folder, "textured")
    assert others == list(range(1, len(others) + 1))  # they neither paused nor went back
    rejoined = rounds_of(result.folder, "rendered")
    missed = set(range(1, max(rejoined) + 1)) - set(rejoined)
    assert missed
    assert max(rejoined) > max(missed)  # it continued in the round of the others, not in that of its checkpoint


def test_an_async_run_whose_sources_are_all_gone_for_a_while_is_completed(ray_session, tmp_path):
    sources = ("rendered", "textured", "street")
    settings = {**SLOW, "federation.mode": "async", "federation.delays": dict.fromkeys(sources, 0.1)}

    def kill_all(federation):
        for name in sources:
            kill(name)(federation)

    result, started = run_with_fault(ray_session, settings, tmp_path / "run", kill_all)
    assert result.finished
    assert len(started) == 1
    assert {text.split(" left")[0] for text in result.summary["failures"] if " left in round" in text} == set(sources)
    assert set(final_weights(result)) == {*sources, "handwritten"}


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mknod, (str(self.path),))


def test_a_pickle_that_is_sent_to_the_coordinator_is_refused_and_not_read(ray_session, tmp_path):
    content = pickle.dumps(Payload(tmp_path / "owned"))

    def attack(federation):
        with pytest.raises(BadMessageError, match="a call is damaged"):
            ray.get(federation._coordinator.call.remote(content))

    result, started = run_with_fault(ray_session, SLOW, tmp_path / "run", attack)
    assert result.finished
    assert len(started) == 1
    assert not (tmp_path / "owned").exists()
    assert result.summary["suspicions"] == {"unknown": {"call refused": 1}}


def test_large_aggregates_are_shared(ray_session, tmp_path):
    settings = {**SYNC, "model.num_features": 400, "model.dim": 64, "train.rounds": 3, "adapt.steps": 1}
    by_ray = fedrf.run(None, settings, out=tmp_path / "ray", session=ray_session)
    by_threads = fedrf.run(None, settings, out=tmp_path / "threads", local=True)
    assert final_weights(by_ray) == final_weights(by_threads)


def test_a_client_that_fails_ends_the_run_with_its_reason(ray_session, tmp_path):
    settings = {**TINY, "model.extractor": "identity"}  # it cannot take images
    with pytest.raises(RunFailedError, match="extractor 'identity' needs samples that are rows of features"):
        fedrf.run(None, settings, out=tmp_path / "run", session=ray_session)
    assert RunFolder(tmp_path / "run").read_summary()["status"] == "failed"


def test_several_clients_in_one_actor(two_actors, tmp_path, expected):
    result = fedrf.run(None, {**SYNC, **TWO_ACTORS}, out=tmp_path / "run", session=two_actors)
    assert final_weights(result) == expected


def start(tmp_path, settings, *options):
    """Start `fedrf run` in a process of its own."""
    keys = [f"{key}={json.dumps(value)}" for key, value in {**SLOW, **settings}.items()]
    command = [sys.executable, "-m", "fedrf", "run", *keys, "--out", str(tmp_path / "run"), *options]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_checkpoint(folder, version, process):
    deadline = time.monotonic() + 300
    while not list((folder / "checkpoints/coordinator").glob(f"*{version}.safetensors")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_sample_of_clients_that_share_processes_gives_the_same_bits(two_actors, tmp_path):
    settings = {**SYNC, "data.partition": "even", "data.clients": 2, "federation.participants": 2}
    local = fedrf.run(None, settings, out=tmp_path / "local", local=True)
    shared = {**settings, "resources.clients_per_actor": 4, "resources.gpus_per_client": 0}
    result = fedrf.run(None, shared, out=tmp_path / "run", session=two_actors)
    assert final_weights(result) == final_weights(local)


class BrokenClient(ClientActor):
    """A process in which one of the clients fails."""

    def __init__(self):
        super().__init__()
        import fedrf.federation.worker as worker

        load = worker.load_samples

        def load_or_fail(config, name):
            if name == "street":
                raise ValueError("broken by the test")
            return load(config, name)

        worker.load_samples = load_or_fail


def test_the_failure_of_a_client_that_shares_a_process_is_its_own(ray_session, tmp_path):
    class BrokenSession(RaySession):
        actor_class = BrokenClient

    with BrokenSession() as session, pytest.raises(RunFailedError, match=r"^street failed: ValueError: broken by"):
        fedrf.run(None, {**SYNC, **TWO_ACTORS}, out=tmp_path / "run", session=session)


def test_resume_after_the_driver_was_killed_ends_with_the_same_bits(two_actors, tmp_path, expected):
    process = start(tmp_path, TWO_ACTORS, "--address", ray.get_runtime_context().gcs_address)
    wait_for_checkpoint(tmp_path / "run", 5, process)
    process.kill()
    process.wait()
    assert not list(tmp_path.glob("run/checkpoints/*/final.safetensors"))
    result = fedrf.run(resume=tmp_path / "run", session=two_actors)
    assert result.finished
    assert final_weights(result) == expected
    assert rounds_of(result.folder, "street") == list(range(1, 13))  # every round once


def test_a_signal_saves_prints_the_summary_and_leaves_no_process(tmp_path, expected):
    process = start(tmp_path, {"resources.clients_per_actor": 4}, "--json")  # starts its own Ray
    wait_for_checkpoint(tmp_path / "run", 3, process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)  # not SIGINT, which is tested without Ray: Ray has a handler for SIGTERM
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    summary = json.loads(out)
    assert summary["status"] == "interrupted"
    assert 3 <= summary["rounds"] < 12
    assert not psutil.wait_procs(family, timeout=10)[1]
    assert final_weights(fedrf.run(resume=tmp_path / "run", local=True)) == expected


def make_light_session():
    """Return a session class whose actors run no client and start without imports."""

    class LightActor(ClientActor):  # a local class is sent by value: the actor need not import this module
        def __init__(self):
            pass

    class LightSession(RaySession):
        actor_class = LightActor

    return LightSession


LightSession = make_light_session()


@pytest.fixture
def light_session(ray_session):
    """A session with nothing reserved on the shared Ray but what runs without a GPU."""
    ray_session.stop_idle()
    with LightSession() as session:
        yield session


def test_five_clients_get_five_devices_and_halves_share_them(light_session, tmp_path):
    names = ("a", "b", "c", "d")

    def devices(share):
        config = load_config(None, {**TINY, "resources.gpus_per_client": share, "resources.cpus_per_client": 0.5})
        federation = RayFederation(light_session, config, names, "t", Fence(tmp_path, ""), None)
        where = federation.where()
        federation.close()
        return [tuple(where[name]["gpus"]) for name in (*names, "t")], where["coordinator"]["gpus"]

    whole, coordinator = devices("auto")
    assert len(set(whole)) == 5
    assert coordinator == []
    halves, _ = devices(0.5)
    assert len(set(halves)) == 3


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("resources.gpus_per_client", 2, "is 2 GPUs for a process, which uses one: allowed is at most 1"),
        (
            "resources.cpus_per_client",
            3,
            r"4 clients of 3 CPUs do not fit on nodes with 8 CPUs and 5 GPUs: .*resources\.cpus_per_client=2",
        ),
        ("resources.nodes", {"street": "nowhere"}, "resources.nodes: no node of the cluster offers nowhere"),
    ],
)
def test_too_few_resources_fail_at_once_with_what_to_change(light_session, tmp_path, key, value, message):
    with pytest.raises(ValueError, match=message):
        fedrf.run(None, {**TINY, key: value}, out=tmp_path / "run", session=light_session)
    assert not list(tmp_path.iterdir())


def test_comparisons_and_sweeps_with_too_few_resources_leave_nothing_behind(
    light_session, tmp_path, monkeypatch, capfd
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    keys = ["digits", "method=fedrf-plus", "resources.cpus_per_client=3"]
    for command, arguments in ((fedrf_main, ["compare", keys[0], keys[2], "--seeds", "0"]), (tune_main, keys)):
        monkeypatch.setattr(sys, "argv", ["command", *arguments])
        with pytest.raises(SystemExit) as stopped:
            command()
        assert stopped.value.code == 2
        assert "4 clients of 3 CPUs do not fit on nodes with 8 CPUs and 5 GPUs" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_files_are_checked_on_the_nodes_of_the_clients(light_session, tmp_path):
    """Of a cluster the driver may not have the files itself."""
    for domain, classes in {"a": "xy", "b": "xyz", "c": "xy"}.items():
        for name in classes:
            images(tmp_path / "scans" / domain / name)
    keys = {"data.name": "folder", "data.root": str(tmp_path / "scans"), "data.target": "c", "data.classes": ["x", "y"]}
    keys["data.sources"] = ["a", "b"]
    with pytest.raises(ValueError, match=r"^b: .*z"):
        fedrf.run(None, keys, out=tmp_path / "run", session=light_session)
    assert not (tmp_path / "run").exists()


def test_the_address_of_a_cluster_is_accepted(ray_session):
    address = ray.get_runtime_context().gcs_address
    check_address(address)
    check_address(f"localhost:{address.rpartition(':')[2]}")


def test_resources_that_others_hold_are_waited_for_only_some_time(light_session, tmp_path, monkeypatch):
    monkeypatch.setattr("fedrf.runtime.ray.pool.RESERVE_SECONDS", 1.0)
    holder = ray.remote(LightSession.actor_class).options(num_gpus=3).remote()
    assert ray.get(holder.where.remote())
    try:
        with pytest.raises(ValueError, match="the clients need 4 GPUs, and of Ray's 5 only 2 are free"):
            fedrf.run(None, {**TINY, "resources.gpus_per_client": 1}, out=tmp_path / "run", session=light_session)
    finally:
        ray.kill(holder)
    assert not list(tmp_path.iterdir())


def test_in_a_given_placement_group_actors_take_what_it_has(light_session):
    """A run that was configured on a larger machine requires more, and would never start."""
    group = ray.util.placement_group([{"CPU": 0.1}, {"CPU": 0.5}])
    with LightSession(group=group) as session:
        pool = session.acquire(("a",), ResourcesConfig(cpus_per_client=4, gpus_per_client=0))
        assert ray.get(pool.actors[0].where.remote(), timeout=120)["pid"]
        session.give_back(pool)
    ray.util.remove_placement_group(group)
