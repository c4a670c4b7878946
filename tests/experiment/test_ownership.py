"""Two drivers and one run directory, and what a run directory tells about a failure."""

import json
import subprocess
import sys
import time

import pytest

import fedrf
from fedrf.errors import RunFailedError
from fedrf.experiment import restarts
from fedrf.experiment.restarts import Restarts
from fedrf.experiment.results import RunFolder
from fedrf.federation.client import Client
from tests.conftest import SYNC, final_weights

SLOW = {**SYNC, "train.rounds": 30, "federation.delays": {"street": 0.05}, "adapt.when": "never"}


@pytest.fixture
def other_driver(tmp_path):
    """A driver in another process, in the middle of a run."""
    keys = [f"{key}={json.dumps(value)}" for key, value in SLOW.items()]
    command = [sys.executable, "-m", "fedrf", "run", *keys, "--local", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not list(tmp_path.glob("run/checkpoints/coordinator/*2.safetensors")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.02)
    yield process
    process.kill()
    process.communicate()


def test_a_directory_in_use_is_refused_and_the_run_in_it_goes_on(tmp_path, other_driver):
    for call in ({"resume": tmp_path / "run"}, {"out": tmp_path / "run"}):
        with pytest.raises(ValueError, match=rf"is in use by process {other_driver.pid} on|already holds a run"):
            fedrf.run(None, SLOW if "out" in call else (), **call, local=True)
    _, err = other_driver.communicate(timeout=120)
    assert other_driver.returncode == 0, err
    rows = RunFolder(tmp_path / "run").rows()
    numbers = [row["round"] for row in rows if row["client"] == "street" and "loss" in row]
    assert numbers == list(range(1, 31))
    assert RunFolder(tmp_path / "run").read_summary()["status"] == "finished"
    assert not (tmp_path / "run/owner.json").exists()


def test_after_a_kill_the_directory_is_free(tmp_path, other_driver):
    other_driver.kill()
    other_driver.wait()
    assert (tmp_path / "run/owner.json").exists()
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert final_weights(resumed) == final_weights(fedrf.run(None, SLOW, out=tmp_path / "whole", local=True))


def test_a_driver_whose_run_was_taken_over_ends_and_writes_nothing(tmp_path):
    def take_over(rows):
        (tmp_path / "run/owner.json").write_text('{"token": "of another"}')
        return False

    with pytest.raises(RunFailedError, match="has been taken over by another process"):
        fedrf.run(None, SLOW, out=tmp_path / "run", local=True, observe=take_over)
    assert not (tmp_path / "run/summary.json").exists()


def events(folder):
    return [json.loads(line) for line in (folder / "run.log").read_text().splitlines()]


def test_a_failed_run_says_why_in_summary_and_log(tmp_path, monkeypatch):
    def fail(self):
        raise RuntimeError("the disk\nis on fire")

    monkeypatch.setattr(Client, "run", fail)
    with pytest.raises(RunFailedError):
        fedrf.run(None, SYNC, out=tmp_path / "run", local=True)
    summary = RunFolder(tmp_path / "run").read_summary()
    assert summary["status"] == "failed"
    assert any("failed: RuntimeError: the disk" in failure for failure in summary["failures"])
    written = events(tmp_path / "run")
    assert written[0]["event"] == "started"
    assert any("is on fire" in event.get("traceback", "") for event in written if event["event"] == "client failed")
    assert written[-1]["event"] == "failed"


def test_a_run_directory_tells_what_it_was_made_with(tmp_path):
    result = fedrf.run(None, {**SYNC, "train.rounds": 1, "adapt.when": "never"}, out=tmp_path / "run", local=True)
    made = result.summary["environment"]
    assert set(made["versions"]) >= {"fedrf", "torch", "ray", "lightning"}
    assert all(made["versions"].values())
    assert set(made) == {"date", "host", "command", "python", "versions", "commit"}
    assert events(result.folder)[0]["versions"] == made["versions"]
    assert events(result.folder)[-1]["event"] == "finished"


def test_a_row_that_a_crash_has_cut_off_is_ignored(tmp_path):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text('{"round": 1}\n{"round": 2, "lo')
    assert folder.rows() == [{"round": 1}]


def test_restarts_are_a_rate(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(restarts.time, "monotonic", lambda: now[0])
    counted = Restarts(3)
    for hour in range(50):  # three in an hour, for two days
        now[0] = 3700.0 * hour
        assert all(counted.allow("a") for _ in range(3))
    assert not counted.allow("a")
    assert counted.allow("b")
