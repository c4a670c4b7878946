"""Sweeps with real federations: selection by score, early stopping, and resuming after a kill."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedrf
from fedrf.config.loader import load_config
from fedrf.experiment.results import RunFolder
from tests.tune.conftest import SMALL, write_space
from tune.cli import main
from tune.plan import SweepPlan, plan_sweep, start_or_resume
from tune.results import best
from tune.space import config_at
from tune.sweep import _restore_tuner, run_sweep


def test_the_state_of_another_version_is_refused_in_one_line(tmp_path):
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune/tuner.pkl").write_bytes(b"cfedrf.no_such_module\nScheduler\n.")  # a pickled reference to a class
    with pytest.raises(
        ValueError, match=r"^--resume: the sweep in .* is from another version of fedrf; start a new one"
    ):
        _restore_tuner({}, tmp_path)


@pytest.mark.ray
def test_trials_are_stopped_and_chosen_by_score(ray_session, tmp_path):
    """Trials with constant predictions are stopped early; the range of γ is measured by a federation."""
    space = write_space(
        tmp_path,
        align__gamma={"default": 0.005, "range": "informative"},
        model__scale={"default": 10.0, "values": [10.0, 0.001]},
    )
    slow = {"federation.delays": {"rendered": 0.3}}  # slow enough to be stopped in time
    plan = plan_sweep("digits", {**SMALL, **slow, "train.rounds": 18}, space=space, samples=3)
    folder = tmp_path / "sweep"
    start_or_resume(plan, folder, resume=False)
    results, complete = run_sweep(plan, folder, concurrent=1)
    assert complete
    plan = SweepPlan.load(folder)
    low, high = plan.measured.informative_gamma
    assert 0 < low < high
    assert results[0].point == {"align.gamma": 0.005, "model.scale": 10.0}
    assert results[0].status == "finished"
    assert all(low * 0.999 <= result.point["align.gamma"] <= high * 1.001 for result in results[1:])
    assert {result.status for result in results if result.point["model.scale"] == 0.001} == {"stopped early"}
    assert best(results).point["model.scale"] == 10.0
    for result in results:
        rows = RunFolder(Path(result.folder)).rows()
        last = max(row["round"] for row in rows if "loss" in row)
        assert last == 18 if result.status == "finished" else last < 18
        assert config_at(plan.given, result.point).digest in result.folder


def sweep_arguments(folder):
    """Return the arguments of a sweep with two trials, one after the other, that take seconds each."""
    keys = [f"{key}={json.dumps(value)}" for key, value in SMALL.items()]
    slow = ["train.rounds=8", "federation.delays={rendered: 0.2}", "federation.checkpoint_seconds=0"]
    space = write_space(folder, train__lr={"default": 0.003, "values": [0.003, 0.01]})
    options = ["--space", space, "--search", "grid", "--to-the-end", "--concurrent", "1"]
    return ["digits", *keys, *slow, *options, "--out", str(folder / "sweep")]


def start_sweep(folder):
    """Start `python -m tune` in a new process with its own Ray."""
    return subprocess.Popen(
        [sys.executable, "-m", "tune", *sweep_arguments(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"},
    )


def finished(folder):
    """Return the run directories of finished runs, with the times of their summaries."""
    times = {}
    for path in folder.glob("trials/*/summary.json"):
        if json.loads(path.read_text())["status"] == "finished":
            times[path.parent.name] = path.stat().st_mtime_ns
    return times


def unfinished(folder):
    """Return the run directories that have a checkpoint but are not finished."""
    started = {path.parents[2].name for path in folder.glob("trials/*/checkpoints/coordinator/*.safetensors")}
    return started - set(finished(folder))


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_sweep_is_resumed_without_repeating_work(tmp_path, ray_session, monkeypatch, capfd):
    """The sweep is resumed in another Ray, with other resources than the one that was killed."""
    ray_session.stop_idle()
    folder = tmp_path / "sweep"
    process = start_sweep(tmp_path)
    deadline = time.monotonic() + 400
    while not finished(folder) or not unfinished(folder):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = finished(folder)
    monkeypatch.setattr(sys, "argv", ["tune", *sweep_arguments(tmp_path), "--resume", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert not ended.value.code, err
    summary = json.loads(out)
    assert summary["counts"] == {"finished": 2, "stopped early": 0, "unfinished": 0, "failed": 0}
    assert {name: when for name, when in finished(folder).items() if name in before} == before
    for run in folder.glob("trials/*"):
        rounds = [row["round"] for row in RunFolder(run).rows() if row["client"] == "street" and "loss" in row]
        assert rounds == list(range(1, 9))  # the killed trial continued from its checkpoint
    check_files(folder, summary)


def check_files(folder, summary):
    best = max(summary["trials"], key=lambda trial: trial["score"])
    assert summary["best"] == best
    assert summary["oracle"]["accuracy"] == max(trial["accuracy"] for trial in summary["trials"])
    config = load_config(folder / "best.yaml")
    assert config.train.lr == best["point"]["train.lr"]
    assert config.digest == Path(best["folder"]).name
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["number"]) for row in rows] == [trial["number"] for trial in summary["trials"]]
    assert [float(row["train.lr"]) for row in rows] == [trial["point"]["train.lr"] for trial in summary["trials"]]
    assert (folder / "train.lr.svg").read_text().count("<svg") == 1
    page = (folder / "report.html").read_text()
    assert "oracle" in page
    assert page.count("<svg") == 1
    assert fedrf.run(resume=best["folder"]).target_accuracy == best["accuracy"]  # an ordinary run directory


@pytest.mark.ray
def test_as_many_trials_run_concurrently_as_fit_and_share_a_wandb_group(ray_session, tmp_path):
    """Eight CPUs and trials that need four: two trials run at a time, and none waits forever."""
    ray_session.stop_idle()
    space = write_space(tmp_path, train__lr={"default": 0.003, "values": [0.003, 0.01, 0.03]})
    keys = {
        **SMALL,
        "resources.cpus_per_client": 1,
        "resources.gpus_per_client": 0,
        "federation.delays": {"rendered": 0.2},  # long enough for the second trial to start
        "track.wandb": "offline",
        "data.validation": 0.25,
        "track.select": "dev",
    }
    plan = plan_sweep("digits", keys, space=space, search="grid", early_stopping=False)
    folder = tmp_path / "sweep"
    start_or_resume(plan, folder, resume=False)
    results, _ = run_sweep(plan, folder)
    assert [result.status for result in results] == ["finished"] * 3
    spans = [
        ((Path(result.folder) / "config.yaml").stat().st_mtime, (Path(result.folder) / "summary.json").stat().st_mtime)
        for result in results
    ]
    concurrent = [sum(start <= moment <= end for start, end in spans) for moment, _ in spans]
    assert max(concurrent) == 2
    for result in results:
        assert result.score == -RunFolder(Path(result.folder)).read_summary()["scores"]["dev"]  # less risk is better
        (recorded,) = Path(result.folder).glob("wandb/offline-run-*/*.wandb")
        assert b"sweep-sweep" in recorded.read_bytes()


@pytest.mark.ray
def test_bayesian_search_continues_after_invalid_points(ray_session, tmp_path):
    """Optuna does not know that m must not exceed 2 N; the recipe's own N is not in the list of values."""
    space = write_space(tmp_path, model__num_features={"default": 500, "values": [3]})
    plan = plan_sweep("digits", SMALL, space=space, search="bayes", samples=3, early_stopping=False)
    folder = tmp_path / "sweep"
    start_or_resume(plan, folder, resume=False)
    results, complete = run_sweep(plan, folder, concurrent=2)
    assert complete
    assert results[0].point == results[1].point == {"model.num_features": 30}
    for result in results:
        if result.point["model.num_features"] == 30:
            assert result.status == "finished"
        else:
            assert result.status == "failed"
            assert "model.dim=8 must not" in result.error
    assert len({result.status for result in results}) == 2
    assert len(list(folder.glob("trials/*/metrics.jsonl"))) == 1  # a repeated point is not run again
