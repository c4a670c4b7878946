"""Run directories, resuming, and the command line, in one process."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import yaml

import fedrf
from fedrf.config.loader import load_config
from fedrf.errors import RunFailedError
from fedrf.experiment.results import RunFolder, summarise
from fedrf.experiment.run import Experiment
from fedrf.federation.checkpoints import ClientFiles
from fedrf.runtime.local import LocalFederation
from tests.conftest import TINY, final_weights

SYNC = {**TINY, "federation.mode": "sync", "federation.checkpoint_seconds": 0}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return fedrf.run("digits", SYNC, out=tmp_path_factory.mktemp("finished") / "run", seed=3, local=True)


def command(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "fedrf", *map(str, arguments)], capture_output=True, text=True, timeout=120, **more
    )


def test_a_run_directory_has_what_the_interface_promises(finished):
    names = {path.name for path in finished.folder.iterdir()}
    assert {"config.yaml", "metrics.jsonl", "summary.json", "checkpoints", "report.html"} <= names
    summary = json.loads((finished.folder / "summary.json").read_text())
    assert summary == finished.summary
    assert summary.keys() >= {"method", "dataset", "sources", "target", "seed", "rounds", "config_hash", "failures"}
    assert summary["target_accuracy"].keys() == {"final", "selected", "oracle"}
    assert summary["communication"].keys() >= {"bytes_total", "bytes_per_round", "bytes_by_kind"}
    assert summary["communication"]["bytes_by_kind"].keys() >= {"mean_embedding", "aligner", "classifier", "extractor"}
    assert summary["seconds"].keys() == {"total", "per_round"}
    assert 0 < summary["seconds"]["per_round"] * 6 < summary["seconds"]["total"]  # without start and last stage
    assert (summary["seed"], summary["rounds"], summary["status"]) == (3, 6, "finished")
    assert yaml.safe_load((finished.folder / "config.yaml").read_text())["seed"] == 3


def test_every_round_of_every_client_has_a_line(finished):
    rows = RunFolder(finished.folder).rows()
    for client in ("rendered", "textured", "street"):
        assert [row["round"] for row in rows if row["client"] == client and "loss" in row] == [1, 2, 3, 4, 5, 6]
    steps = [row["step"] for row in rows if row["client"] == "handwritten" and "step" in row]
    assert steps == [2, 4]


def test_final_selected_and_oracle(finished):
    rows = [row for row in RunFolder(finished.folder).rows() if row["client"] == "handwritten" and "accuracy" in row]
    accuracy = finished.summary["target_accuracy"]
    assert accuracy["final"] == rows[-1]["accuracy"]
    assert accuracy["oracle"] == max(row["accuracy"] for row in rows)
    assert accuracy["selected"] == max(rows, key=lambda row: row["information"])["accuracy"]


def test_bytes_add_up(finished):
    traffic = finished.summary["communication"]
    assert traffic["bytes_total"] == sum(traffic["bytes_by_kind"].values())
    assert traffic["bytes_total"] == sum(sum(one.values()) for one in traffic["by_direction"].values())
    assert traffic["bytes_per_round"] == traffic["bytes_total"] / 6


def test_the_same_seed_gives_the_same_bits_and_another_does_not(finished, tmp_path):
    again = fedrf.run(None, {**SYNC, "seed": 3}, out=tmp_path / "again", local=True)
    other = fedrf.run(None, {**SYNC, "seed": 4}, out=tmp_path / "other", local=True)
    assert final_weights(again) == final_weights(finished)
    assert final_weights(other) != final_weights(finished)


class Interrupted(LocalFederation):
    """Ctrl-C in the middle, as the driver sees it."""

    at = 3

    def wait(self, seconds):
        if self.at and max(self.call("poll", 10**9)["rounds"].values()) >= self.at:
            self.at = None
            signal.raise_signal(signal.SIGINT)
        return super().wait(0.001)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_interrupted_run_is_saved_and_goes_on(tmp_path, mode):
    slow = {**SYNC, "federation.mode": mode, "train.rounds": 10, "federation.delays": {"street": 0.1, "rendered": 0.1}}
    config = load_config(None, slow)
    stopped = Experiment(config, RunFolder.create(config, tmp_path / "run"), False).run(Interrupted)
    assert stopped.summary["status"] == "interrupted"
    assert stopped.summary["target_accuracy"]["final"] is None
    assert 2 <= stopped.summary["rounds"] < 10
    assert not (tmp_path / "run/checkpoints/handwritten/final.safetensors").exists()
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    assert resumed.summary["rounds"] == 10
    if mode == "sync":
        undisturbed = fedrf.run(None, slow, out=tmp_path / "undisturbed", local=True)
        assert final_weights(resumed) == final_weights(undisturbed)


class InterruptedLate(LocalFederation):
    """Ctrl-C while the target adapts by itself."""

    struck = False

    def wait(self, seconds):
        if not self.struck and any("step" in row for row in self.call("poll", 0)["rows"]):
            self.struck = True
            signal.raise_signal(signal.SIGTERM)
        return super().wait(0.001)


def test_a_second_interruption_breaks_off_at_once(tmp_path):
    class Twice(LocalFederation):
        def wait(self, seconds):
            if max(self.call("poll", 10**9)["rounds"].values()) >= 2:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
            return super().wait(0.001)

    config, before = load_config(None, {**SYNC, "federation.delays": {"street": 0.1}}), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        Experiment(config, RunFolder.create(config, tmp_path / "run"), False).run(Twice)
    assert RunFolder(tmp_path / "run").read_summary()["status"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before  # in a background job, that it is ignored


class InterruptedBallot(LocalFederation):
    """Ctrl-C while the target waits for the votes of a slow source."""

    struck = False

    def wait(self, seconds):
        if not self.struck and self.call("poll", 0)["rounds"]["handwritten"] > self.config.train.rounds:
            self.struck = True
            signal.raise_signal(signal.SIGINT)
        return super().wait(0.001)


def test_a_vote_that_was_interrupted_is_held_again(tmp_path):
    settings = {
        "method": "source-only",
        "data.samples": 300,
        "train.rounds": 30,
        "model.num_features": 100,
        "model.dim": 16,
        "federation.delays": {"street": 2},
    }
    config = load_config(None, settings)
    stopped = Experiment(config, RunFolder.create(config, tmp_path / "run"), False).run(InterruptedBallot)
    assert stopped.summary["status"] == "interrupted"
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    assert resumed.target_accuracy > 0.3  # a vote of nobody has 0.1


def test_an_interruption_in_the_last_stage(tmp_path):
    long = {**SYNC, "adapt.steps": 200, "adapt.pseudo_labels": 0.3, "adapt.renew": 7}
    config = load_config(None, long)
    stopped = Experiment(config, RunFolder.create(config, tmp_path / "run"), False).run(InterruptedLate)
    assert stopped.summary["status"] == "interrupted"
    steps = [row["step"] for row in RunFolder(stopped.folder).rows() if "step" in row]
    assert 0 < max(steps) < 200
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    undisturbed = fedrf.run(None, long, out=tmp_path / "undisturbed", local=True)
    assert final_weights(resumed) == final_weights(undisturbed)
    steps = [row["step"] for row in RunFolder(resumed.folder).rows() if "step" in row]
    assert steps == list(range(2, 201, 2))


def test_a_finished_run_is_not_run_again(finished):
    before = (finished.folder / "summary.json").stat().st_mtime_ns
    again = fedrf.run(resume=finished.folder, local=True)
    assert again.summary == finished.summary
    assert (finished.folder / "summary.json").stat().st_mtime_ns == before


def test_two_generations_are_kept_and_the_one_in_the_making(finished):
    assert len(list(finished.folder.glob("checkpoints/coordinator/*.pickle"))) == 2
    for name in ("rendered", "textured", "street", "handwritten"):
        assert len(list(ClientFiles(finished.folder, name).folder.glob("*.ckpt"))) in (2, 3)


def test_a_directory_that_holds_a_run_is_not_overwritten(finished):
    with pytest.raises(ValueError, match="already holds a run; continue it with --resume"):
        fedrf.run(None, TINY, out=finished.folder, local=True)


def test_resuming_nothing(tmp_path):
    with pytest.raises(ValueError, match=r"is no run directory: it has no config\.yaml"):
        fedrf.run(resume=tmp_path, local=True)


def test_a_run_without_a_checkpoint_resumes_from_the_beginning(tmp_path, finished):
    (tmp_path / "config.yaml").write_text((finished.folder / "config.yaml").read_text())
    assert final_weights(fedrf.run(resume=tmp_path, local=True)) == final_weights(finished)


def test_a_failure_in_a_client_ends_the_run_and_is_written_down(tmp_path):
    with pytest.raises(RunFailedError, match="failed: ValueError: extractor 'identity' needs samples"):
        fedrf.run(None, {**TINY, "model.extractor": "identity"}, out=tmp_path / "run", local=True)
    assert RunFolder(tmp_path / "run").read_summary()["status"] == "failed"
    assert fedrf.run(None, TINY, out=tmp_path / "run", local=True).finished  # nothing was there to lose


def test_a_summary_of_nothing():
    summary = summarise(load_config(), ("street",), "failed", {}, [], ["lost"])
    assert summary["target_accuracy"] == {"final": None, "selected": None, "oracle": None}
    assert summary["failures"] == ["lost"]


def test_the_command_prints_only_json_when_asked(tmp_path):
    keys = [f"{key}={value}" for key, value in TINY.items()]
    done = command("run", "digits", *keys, "--local", "--json", "--out", tmp_path / "run", "--seed", 1)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "run/summary.json").read_text())
    page = command("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert page.returncode == 0, page.stderr
    text = (tmp_path / "page.html").read_text()
    assert "fedrf-plus" in text
    assert text.count("<svg") == 1
    assert not re.search("<(script|link|img)|src=", text)  # one file that needs no other


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["train.rounds=0"], "train.rounds=0: Input should be greater than or equal to 1"),
        (["data.target=mars"], "data.target='mars': the domains of digits are handwritten, rendered, textured, street"),
        (["data.sources=[venus]"], "data.sources='venus'"),
        (["nowhere.yaml"], "there is no file nowhere.yaml"),
        (["no-recipe"], "'no-recipe' is no recipe and no .yaml file; recipes: digit-five, digit-four, digits"),
        (["--resume", "nowhere"], "nowhere is no run directory"),
        (["federation.delays={nobody: 3}"], "federation.delays names nobody; the clients are rendered, textured"),
        (["--resume", "somewhere", "train.rounds=3"], "--resume takes the configuration of the run that it continues"),
        (["--seed", "-1"], "seed=-1"),
    ],
)
def test_a_slip_gives_one_line(tmp_path, arguments, complaint):
    done = command("run", *arguments, "--local", cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stdout == ""


def test_help_and_keys_teach():
    assert "--resume" in command("run", "--help").stdout
    keys = command("run", "--keys", env={**os.environ, "COLUMNS": "200"}).stdout
    assert "federation.classifier_interval" in keys
    assert "T_C" in keys


def test_sigterm_saves_as_ctrl_c_does(tmp_path):
    slow = {**SYNC, "train.rounds": 50, "federation.delays": '{"street": 0.1}'}
    keys = [f"{key}={value}" for key, value in slow.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedrf", "run", *keys, "--local", "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("run/checkpoints/coordinator/*3.pickle")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "(interrupted)" in out
