"""Federations as Ray actors: the same numbers as in one process, devices, and every way to die."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

import fedrf
from fedrf.config.loader import load_config
from fedrf.config.schema import ResourcesConfig
from fedrf.errors import RunFailedError
from fedrf.experiment.results import RunFolder
from fedrf.experiment.run import Experiment
from fedrf.runtime.ray import RayFederation, RaySession
from tests.conftest import TINY, final_weights

pytestmark = pytest.mark.ray
SYNC = {**TINY, "federation.mode": "sync", "federation.checkpoint_seconds": 0}
# Slow enough for a test to strike in the middle.
SLOW = {**SYNC, "train.rounds": 12, "federation.delays": {"rendered": 0.25}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    result = fedrf.run(None, SLOW, out=tmp_path_factory.mktemp("undisturbed") / "run", local=True)
    return final_weights(result)


class Striking(RayFederation):
    """A federation that is struck once the sources are in round 4."""

    strike = None

    def call(self, name, *arguments):
        answer = super().call(name, *arguments)
        if name == "poll" and self.strike and max(answer["rounds"].values()) >= 4:
            strike, type(self).strike = type(self).strike, None
            strike(self)
        return answer


def run_struck(session, config, out, strike):
    """Run with actors, and strike once."""
    folder = RunFolder.create(config, out)
    made = []

    class Struck(Striking):
        pass

    Struck.strike = staticmethod(strike)

    def make(*arguments):
        made.append(Struck(session, *arguments))
        return made[-1]

    return Experiment(config, folder, False).run(make), made


def kill(name):
    return lambda federation: os.kill(federation.where()[name]["pid"], signal.SIGKILL)


def test_actors_and_threads_give_the_same_bits(ray_session, tmp_path, undisturbed):
    result = fedrf.run(None, SLOW, out=tmp_path / "run", session=ray_session)
    assert final_weights(result) == undisturbed
    again = fedrf.run(None, SLOW, out=tmp_path / "again", session=ray_session)
    assert final_weights(again) == undisturbed


@pytest.mark.parametrize(
    ("name", "reason"), [("textured", "textured was lost"), ("coordinator", "coordinator is gone")]
)
def test_sync_run_ends_with_the_same_bits_after_a_kill(ray_session, tmp_path, undisturbed, name, reason):
    result, made = run_struck(ray_session, load_config(None, SLOW), tmp_path / "run", kill(name))
    assert result.finished
    assert len(made) == 2
    assert reason in result.summary["failures"][0]
    assert final_weights(result) == undisturbed


def test_async_client_that_dies_rejoins_without_stopping_the_others(ray_session, tmp_path):
    """The run is stopped when the client has taken part again for some rounds, however long its restart takes."""
    delays = dict.fromkeys(("rendered", "textured", "street"), 0.2)
    config = load_config(None, {**SLOW, "federation.mode": "async", "train.rounds": 2000, "federation.delays": delays})

    class Returning(Striking):
        died_in = None

        def call(self, name, *arguments):
            answer = super().call(name, *arguments)
            if name == "poll":
                if self.died_in is None and "rendered" not in answer["present"]:
                    self.died_in = answer["rounds"]["rendered"]
                elif self.died_in is not None and answer["rounds"]["rendered"] > self.died_in + 5:
                    RayFederation.call(self, "stop")
            return answer

    Returning.strike = staticmethod(kill("rendered"))
    made = []

    def make(*arguments):
        made.append(Returning(ray_session, *arguments))
        return made[-1]

    result = Experiment(config, RunFolder.create(config, tmp_path / "run"), False).run(make)
    assert len(made) == 1
    assert any("rendered left in round" in failure for failure in result.summary["failures"])
    rounds = {
        name: [row["round"] for row in RunFolder(result.folder).rows() if row["client"] == name and "loss" in row]
        for name in delays
    }
    assert rounds["textured"] == list(range(1, len(rounds["textured"]) + 1))  # the others never paused or went back
    missed = set(range(1, max(rounds["rendered"]) + 1)) - set(rounds["rendered"])
    assert missed  # it was away ...
    assert max(rounds["rendered"]) > max(missed)  # ... and went on where the others were, not where it had been


def start(tmp_path, settings, *options):
    """`fedrf run` in a process of its own."""
    keys = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    command = [sys.executable, "-m", "fedrf", "run", *keys, "--out", str(tmp_path / "run"), *options]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_generation(folder, number, process):
    deadline = time.monotonic() + 300
    while not list((folder / "checkpoints/coordinator").glob(f"*{number}.pickle")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_resume_after_the_driver_was_killed_ends_with_the_same_bits(ray_session, tmp_path, undisturbed):
    process = start(tmp_path, SLOW)
    wait_for_generation(tmp_path / "run", 5, process)
    process.kill()
    process.wait()
    assert not list(tmp_path.glob("run/checkpoints/*/final.safetensors"))
    result = fedrf.run(resume=tmp_path / "run", session=ray_session)
    assert result.finished
    assert final_weights(result) == undisturbed
    rounds = [row["round"] for row in RunFolder(result.folder).rows() if row["client"] == "street" and "loss" in row]
    assert rounds == list(range(1, 13))  # every round once


def test_a_signal_saves_prints_the_summary_and_leaves_no_process(ray_session, tmp_path, undisturbed):
    process = start(tmp_path, SLOW, "--json")
    wait_for_generation(tmp_path / "run", 3, process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)  # the harder one, for Ray has a handler of its own; SIGINT is tried without Ray
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    summary = json.loads(out)
    assert summary["status"] == "interrupted"
    assert 3 <= summary["rounds"] < 12
    assert not psutil.wait_procs(family, timeout=10)[1]
    result = fedrf.run(resume=tmp_path / "run", session=ray_session)
    assert final_weights(result) == undisturbed


def test_five_clients_get_five_devices_and_halves_share_them(ray_session, tmp_path):
    names = ("a", "b", "c", "d")

    def devices(share):
        config = load_config(None, {**TINY, "resources.gpus_per_client": share, "resources.cpus_per_client": 0.5})
        federation = RayFederation(ray_session, config, names, "t", tmp_path, False)
        where = federation.where()
        federation.close()
        return [tuple(where[name]["gpus"]) for name in (*names, "t")], where["coordinator"]["gpus"]

    whole, coordinator = devices("auto")
    assert len(set(whole)) == 5
    assert coordinator == []
    halves, _ = devices(0.5)
    assert len(set(halves)) == 3


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("resources.gpus_per_client", 2, "4 clients need 8 GPUs and Ray has 5; at most 1.25 each"),
        ("resources.cpus_per_client", 3, "4 clients need 12 CPUs and Ray has 8; at most 2 each"),
        ("resources.gpus_per_client", 1.5, r"is 1\.5 GPUs; Ray takes whole numbers, or less than 1"),
    ],
)
def test_too_few_resources_fail_at_once_and_say_what_to_change(ray_session, tmp_path, key, value, complaint):
    with pytest.raises(ValueError, match=complaint):
        fedrf.run(None, {**TINY, key: value}, out=tmp_path / "run", session=ray_session)


def test_resources_that_others_hold_are_not_waited_for_for_ever(ray_session, tmp_path):
    import ray

    @ray.remote(num_gpus=3)
    class Neighbour:
        def here(self):
            return True

    neighbour = Neighbour.remote()
    assert ray.get(neighbour.here.remote())
    try:
        with pytest.raises(ValueError, match="the clients need 4 GPUs, and of Ray's 5 only 2 are free"):
            fedrf.run(None, {**TINY, "resources.gpus_per_client": 1}, out=tmp_path / "run", session=ray_session)
    finally:
        ray.kill(neighbour)


def test_several_clients_in_one_actor(ray_session, tmp_path, undisturbed):
    settings = {**SLOW, "resources.clients_per_actor": 3}
    result = fedrf.run(None, settings, out=tmp_path / "run", session=ray_session)
    assert final_weights(result) == undisturbed


def test_a_client_that_fails_ends_the_run_with_its_reason(ray_session, tmp_path):
    settings = {**TINY, "model.extractor": "identity"}  # images are no rows of features
    with pytest.raises(RunFailedError, match="extractor 'identity' needs samples that are rows of features"):
        fedrf.run(None, settings, out=tmp_path / "run", session=ray_session)
    assert RunFolder(tmp_path / "run").read_summary()["status"] == "failed"


def test_large_aggregates_are_shared(ray_session, tmp_path):
    settings = {**SYNC, "model.num_features": 400, "model.dim": 64, "train.rounds": 3, "adapt.steps": 1}
    by_ray = fedrf.run(None, settings, out=tmp_path / "ray", session=ray_session)
    by_threads = fedrf.run(None, settings, out=tmp_path / "threads", local=True)
    assert final_weights(by_ray) == final_weights(by_threads)


def test_in_room_that_others_reserved_clients_take_what_is_there(ray_session):
    """A run that began on a larger machine asks for more, and would never start."""
    import ray

    group = ray.util.placement_group([{"CPU": 0.1}, {"CPU": 0.5}])
    ray_session.release()
    session = RaySession(group=group)
    crew = session.take(("a",), ResourcesConfig(cpus_per_client=4, gpus_per_client=0))
    try:
        assert ray.get(crew.actor(0).where.remote(), timeout=120)["pid"]
    finally:
        session.give_back(crew)
        session.release()
        ray.util.remove_placement_group(group)
