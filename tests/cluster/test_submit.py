"""`cluster/submit` on a real head node with token authentication: all the ways in which a job can end."""

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from ray.job_submission import JobDetails

import fedrf
from cluster.package import pack
from cluster.submission import exit_code
from cluster.task import read_command
from fedrf.experiment.results import RunFolder
from fedrf.federation.checkpoints import CoordinatorFiles
from tests.cluster.conftest import ROOT
from tests.conftest import TINY

pytestmark = pytest.mark.cluster
ROUNDS = 14
SETTINGS = {
    **TINY,
    "train.rounds": ROUNDS,
    "federation.mode": "sync",
    "federation.checkpoint_seconds": 0,
    "federation.delays": {"rendered": 0.25},  # slow enough to interrupt a run before it ends
    "resources.clients_per_actor": 4,
}


def run(*options, **changes):
    keys = [f"{key}={json.dumps(value)}" for key, value in {**SETTINGS, **changes}.items()]
    return ["--", "fedrf", "run", *keys, *options]


def wait_for_checkpoint(folder, version, process):
    deadline = time.monotonic() + 300
    while CoordinatorFiles(folder).newest < version:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def rounds(folder, client="street"):
    return [row["round"] for row in RunFolder(folder).rows() if row["client"] == client and "loss" in row]


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def work(tmp_path):
    """A working directory that also has files which no job needs."""
    folder = tmp_path / "work"
    needed = ("recipe.yaml", "mine/data/table.csv")
    others = ("data/x", "runs/x", ".git/x", "mine/__pycache__/x", ".ruff_cache/x", "env/pyvenv.cfg", "env/lib/x")
    others += ("mine/best/metrics.jsonl", "mine/best/checkpoints/x")
    for name in (*needed, *others, "secret.txt", "mine/debug.log"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("seed: 1\n")
    (folder / ".gitignore").write_text("secret.txt\n")
    (folder / "mine/.rayignore").write_text("*.log\n")
    return folder


def test_jobs_that_fail_or_are_lost_stopped_or_refused_and_which_files_are_sent(head, work):
    """Several jobs at once, because they take longer to start than to run."""
    list_files = ["sh", "-c", "find . -type f | sort; echo $COLOUR $SHADE $WANDB_PROJECT; exit 7"]
    environment = {**head.environment, "SHADE": "dark", "WANDB_PROJECT": "paint", "RAY_ADDRESS": "127.0.0.1:1"}
    sent = head.submit(work, "--env", "COLOUR=blue", "--env", "SHADE", "--", *list_files, env=environment)
    bad = head.submit(work, *run("train.round=3", "--out", "bad"))
    lost = head.submit(work, "--", "sh", "-c", "kill -9 $$")
    stopped = head.submit(work, "--id", "long", "--", "sh", "-c", "echo begun; exec sleep 100")
    refused = head.submit(work, "--", "pwd", env=head.without_token)

    out, err = sent.communicate(timeout=300)
    files = [".gitignore", "mine/.rayignore", "mine/data/table.csv", "recipe.yaml"]
    assert sorted(out.splitlines()) == sorted([*(f"./{name}" for name in files), "blue dark paint"]), err
    assert sent.returncode == 7

    out, err = bad.communicate(timeout=300)
    assert "train.round" in out
    assert bad.returncode == 2, err
    assert not (work / "bad").exists()

    assert stopped.stdout.readline() == "begun\n"
    head.client.stop_job("long")
    stopped.communicate(timeout=300)
    assert stopped.returncode == 130

    _, err = lost.communicate(timeout=300)
    assert "the cluster lost" in err  # and is not resubmitted: the command may not be repeatable
    assert lost.returncode == 1

    out, err = refused.communicate(timeout=300)
    assert len(err.splitlines()) == 1
    assert "RAY_AUTH_MODE=token" in err
    assert "RAY_AUTH_TOKEN_PATH" in err
    assert (out, refused.returncode) == ("", 1)


def test_a_run_is_stopped_and_fetched_resumed_and_lost_then_resumed_and_finished(head, work, monkeypatch):
    """One run for all, because each start takes seconds; first in threads, which start faster than actors.

    Its method is a module of the working directory.
    """
    shutil.copy(ROOT / "examples/moment_matching.py", work)
    monkeypatch.syspath_prepend(work)
    own_method = {"method": "moment_matching:MomentMatching"}
    remote, local = head.runs / "mine", work / "out/run"
    process = head.submit(work, "--id", "mine", *run("--local", **own_method))
    wait_for_checkpoint(remote, 3, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    summary = RunFolder(work / "runs/mine").read_summary()
    assert summary["status"] == "interrupted"
    assert 0 < summary["rounds"] < ROUNDS
    saved = CoordinatorFiles(work / "runs/mine").newest

    process = head.submit(work, "--id", "mine", *run("--json", "--out", "out/run", **own_method))
    wait_for_checkpoint(remote, saved + 3, process)
    [supervisor] = [child for child in head.processes() if child.name().startswith("ray::JobSuperv")]
    supervisor.kill()
    assert fedrf.run(resume=work / "runs/mine", local=True).finished  # meanwhile: what was fetched is complete
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert "the cluster lost mine.2: Job supervisor actor died" in err
    assert json.loads(out[out.index("{") :]) == RunFolder(local).read_summary()
    for folder in (work / "runs/mine", local):
        assert rounds(folder) == list(range(1, ROUNDS + 1))
    assert contents(local) == contents(remote)
    assert [path.name for path in local.parent.iterdir()] == ["run"]
    assert not list(Path(head.temporary.name).rglob("*.part"))


@pytest.mark.parametrize(
    ("status", "code", "error", "reported"),
    [
        ("SUCCEEDED", 0, None, 0),
        ("FAILED", 3, "JOB_ENTRYPOINT_COMMAND_ERROR", 3),
        ("FAILED", -11, "JOB_ENTRYPOINT_COMMAND_ERROR", 139),
        ("STOPPED", None, None, 130),
        ("FAILED", None, "RUNTIME_ENV_SETUP_FAILURE", 1),
        ("FAILED", None, "JOB_SUPERVISOR_ACTOR_DIED", None),
        ("FAILED", -9, "JOB_ENTRYPOINT_COMMAND_ERROR", None),
        ("FAILED", 137, "JOB_ENTRYPOINT_COMMAND_ERROR", None),
    ],
)
def test_exit_codes(status, code, error, reported):
    ended = JobDetails(type="SUBMISSION", entrypoint="", status=status, driver_exit_code=code, error_type=error)
    assert exit_code(ended) == reported


@pytest.mark.parametrize(
    ("command", "marker", "arguments"),
    [
        ("fedrf run k=1 --json --out=here", None, "-m fedrf run k=1 --json --out HOME/my runs/n"),
        ("fedrf run k=1 --json --out here", "config.yaml", "-m fedrf run --json --resume HOME/my runs/n"),
        (
            "python -m fedrf run --seed 3 --address a:1",
            "config.yaml",
            "-m fedrf run --address a:1 --resume HOME/my runs/n",
        ),
        ("fedrf run --resume ~/other", None, "-m fedrf run --resume HOME/other"),
        ("python -m tune digits --out s", None, "-m tune digits --out HOME/my runs/n"),
        ("python -m tune digits --out s", "sweep.yaml", "-m tune digits --resume --out HOME/my runs/n"),
        ("fedrf doctor --json", None, "-m fedrf doctor --json"),
        ("python -m timeit", None, "-m timeit"),
    ],
)
def test_the_entrypoint_starts_or_resumes_the_command(tmp_path, command, marker, arguments):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$*"\n')
    python.chmod(0o755)
    if marker:
        (tmp_path / "my runs/n").mkdir(parents=True)
        (tmp_path / "my runs/n" / marker).write_text("content")
    task = read_command(command.split(), "~/my runs", "n")
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    result = subprocess.run(task.entrypoint, shell=True, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == arguments.replace("HOME", str(tmp_path))


def test_a_folder_on_the_cluster_must_be_absolute():
    for command, runs in ((["fedrf", "run"], "runs"), (["fedrf", "run", "--resume", "runs/x"], "~/runs")):
        with pytest.raises(ValueError, match="a folder on the cluster must start with / or ~/"):
            read_command(command, runs, "n")


def test_a_working_directory_that_is_too_large_is_refused_with_its_largest_entries(tmp_path):
    (tmp_path / "scans").mkdir()
    with (tmp_path / "scans/all.npy").open("wb") as file:
        file.truncate(600_000_000)
    with pytest.raises(ValueError, match=r"has 600\.0 MB to send, .* largest: scans \(600\.0 MB\)\. .*\.gitignore"):
        pack(tmp_path, tmp_path / "out.zip")


def test_results_are_never_overwritten(work):
    """The call is refused before it contacts the cluster, which does not exist."""
    process = subprocess.run(
        [ROOT / "cluster/submit", "127.0.0.1:1", "--", "fedrf", "run", "--out", "mine"],
        **{"cwd": work, "capture_output": True, "text": True, "check": False},
    )
    assert process.stderr == "submit: --out: mine is not an empty folder; choose another\n"
    assert process.returncode == 2
