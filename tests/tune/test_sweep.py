"""Sweeps with real federations: what is chosen and by what, early stopping, being killed, and going on."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import yaml

import fedrf
from fedrf.config.loader import load_config
from fedrf.experiment.results import RunFolder
from tests.conftest import TINY
from tune.outcome import Outcome, best, ranked
from tune.plan import Plan, begin, make_plan
from tune.report import draw
from tune.scout import SHORT
from tune.space import Parameter, varied
from tune.sweep import run_sweep

# One process for all clients of a trial: it starts in a fraction of the time.
SMALL = {**TINY, "resources.clients_per_actor": 4, "federation.mode": "sync", "track.evaluate_every": 2}


def space_file(folder, **parameters):
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump({key.replace("__", "."): value for key, value in parameters.items()}))
    return str(path)


@pytest.mark.parametrize(
    ("keys", "options", "complaint"),
    [
        ({"align.step": "gradient"}, {"space": "gamma"}, "nothing is left to sweep; name another --space"),
        ({}, {"search": "grid", "samples": 3}, "--samples is for --search random and bayes"),
        ({}, {"samples": 0}, "--samples must be at least 1; got 0"),
        ({"data.target": "nowhere"}, {}, "data.target"),
        ({"train.rounds": 4}, {}, "federation.classifier_interval=5 with train.rounds=4"),
        (
            {"track.select": "dev", "data.validation": 0.2},
            {},
            r"track\.select=dev is the sources' to say.* --to-the-end",
        ),
    ],
)
def test_a_plan_that_cannot_work_is_refused_before_anything_starts(keys, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_plan("digits", keys, **options)


@pytest.mark.parametrize(
    ("method", "left"),
    [
        ("fedrf-plus", {"align.gamma", "model.sigma", "model.num_features", "federation.classifier_interval"}),
        ("fedrf-tca", {"model.sigma", "model.num_features", "federation.classifier_interval"}),
        ("fedavg", {"federation.classifier_interval"}),
        ("fedavg-rf", {"model.sigma", "model.num_features", "federation.classifier_interval"}),
        ("source-only", {"model.sigma", "model.num_features"}),
    ],
)
def test_what_does_nothing_with_a_method_is_left_out_and_said(method, left):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        plan = make_plan("digits", {"method": method})
    assert set(plan.space) == left
    assert len(said) == 4 - len(left)
    assert plan.needs_measuring == ("model.sigma" in left)
    if plan.needs_measuring:  # what measures the ranges is allowed, too
        assert varied(plan.given, SHORT).train.rounds == 1


@pytest.mark.parametrize("key", ["data.samples", "resources.max_restarts", "train.rounds"])
def test_keys_that_trials_must_share_are_refused(tmp_path, key):
    space = space_file(tmp_path, **{key: {"default": 2, "values": [2, 3]}})
    with pytest.raises(ValueError, match=key):
        make_plan("digits", space=space)


def test_the_first_point_is_the_recipe_and_no_point_is_invalid(tmp_path):
    space = space_file(
        tmp_path,
        model__num_features={"default": 500, "values": [4, 100]},
        model__dim={"default": 64, "values": [8, 16]},
    )
    plan = make_plan("digits", {"model.num_features": 77}, space=space, search="grid")
    assert plan.points() == [
        {"model.num_features": 77, "model.dim": 64},
        {"model.num_features": 4, "model.dim": 8},  # 16 would be more than 2 · 4
        {"model.num_features": 100, "model.dim": 8},
        {"model.num_features": 100, "model.dim": 16},
    ]


def test_a_folder_holds_one_sweep_and_resuming_means_the_same_one(tmp_path):
    space = space_file(tmp_path, train__lr={"default": 0.003, "range": [0.001, 0.01]})
    plan = make_plan("digits", {**SMALL, "data.sources": ("street",)}, space=space, samples=3)
    begin(plan, tmp_path / "sweep", resume=False)
    begin(plan, tmp_path / "sweep", resume=False)  # nothing has been done yet
    (tmp_path / "sweep/trials").mkdir()
    with pytest.raises(ValueError, match="already holds a sweep; continue it with --resume"):
        begin(plan, tmp_path / "sweep", resume=False)
    assert begin(plan, tmp_path / "sweep", resume=True) == plan
    other = make_plan("digits", {**SMALL, "data.sources": ("street",)}, space=space, samples=4)
    with pytest.raises(ValueError, match="--resume: samples is not that of the sweep"):
        begin(other, tmp_path / "sweep", resume=True)
    with pytest.raises(ValueError, match="there is no sweep in"):
        begin(plan, tmp_path / "none", resume=True)


@pytest.mark.ray
def test_trials_are_stopped_by_score_and_the_best_is_chosen_without_labels(ray_session, tmp_path):
    """Predictions that are all alike tell nothing, and are ended early; measured ranges come from the federation."""
    space = space_file(
        tmp_path,
        align__gamma={"default": 0.005, "range": "informative"},
        model__scale={"default": 10.0, "values": [10.0, 0.001]},
    )
    slow = {"federation.delays": {"rendered": 0.5}}  # a run goes on until it hears that it is stopped
    plan = make_plan("digits", {**SMALL, **slow, "train.rounds": 18}, space=space, samples=5)
    folder = tmp_path / "sweep"
    begin(plan, folder, resume=False)
    outcomes, complete = run_sweep(plan, folder, concurrent=1)
    assert complete
    plan = Plan.load(folder)
    low, high = plan.measured.informative_gamma
    assert 0 < low < high
    assert outcomes[0].point == {"align.gamma": 0.005, "model.scale": 10.0}
    assert outcomes[0].status == "finished"
    assert all(low * 0.999 <= one.point["align.gamma"] <= high * 1.001 for one in outcomes[1:])
    assert {one.status for one in outcomes if one.point["model.scale"] == 0.001} == {"stopped early"}
    assert best(outcomes).point["model.scale"] == 10.0
    for one in outcomes:
        rows = RunFolder(Path(one.folder)).rows()
        last = max(row["round"] for row in rows if "loss" in row)
        assert last == 18 if one.status == "finished" else last < 18
        assert varied(plan.given, one.point).digest in one.folder


def sweep(tmp_path, *words):
    """`python -m tune` in a process of its own, with a Ray of its own."""
    keys = [f"{key}={json.dumps(value)}" for key, value in SMALL.items()]
    slow = ["train.rounds=8", "federation.delays={rendered: 0.3}", "federation.checkpoint_seconds=0"]
    space = space_file(tmp_path, train__lr={"default": 0.003, "values": [0.003, 0.01, 0.03]})
    call = ["digits", *keys, *slow, "--space", space, "--search", "grid", "--to-the-end", "--concurrent", "1"]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    return subprocess.Popen(
        [sys.executable, "-m", "tune", *map(str, call), "--out", str(tmp_path / "sweep"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finished(folder):
    """The run directories whose run has ended well, with the time of their summaries."""
    found = {}
    for path in folder.glob("trials/*/summary.json"):
        if json.loads(path.read_text())["status"] == "finished":
            found[path.parent.name] = path.stat().st_mtime_ns
    return found


def in_the_middle(folder):
    """The run directories that have a checkpoint and no end."""
    begun = {path.parents[2].name for path in folder.glob("trials/*/checkpoints/coordinator/*.pickle")}
    return begun - set(finished(folder))


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_redoes_nothing(tmp_path):
    folder = tmp_path / "sweep"
    process = sweep(tmp_path)
    deadline = time.monotonic() + 400
    while not finished(folder) or not in_the_middle(folder):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = finished(folder)
    process = sweep(tmp_path, "--resume", "--json")
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert summary["counts"] == {"finished": 3, "stopped early": 0, "unfinished": 0, "failed": 0}
    assert {name: when for name, when in finished(folder).items() if name in before} == before
    for run in folder.glob("trials/*"):
        rounds = [row["round"] for row in RunFolder(run).rows() if row["client"] == "street" and "loss" in row]
        assert rounds == list(range(1, 9))  # the one that was killed, too, went on from its checkpoint
    check_what_is_left(folder, summary)


def check_what_is_left(folder, summary):
    best = max(summary["trials"], key=lambda one: one["score"])
    assert summary["best"] == best
    assert summary["oracle"]["accuracy"] == max(one["accuracy"] for one in summary["trials"])
    config = load_config(folder / "best.yaml")
    assert config.train.lr == best["point"]["train.lr"]
    assert config.digest == Path(best["folder"]).name
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["number"]) for row in rows] == [one["number"] for one in summary["trials"]]
    assert [float(row["train.lr"]) for row in rows] == [one["point"]["train.lr"] for one in summary["trials"]]
    assert (folder / "train.lr.svg").read_text().count("<svg") == 1
    page = (folder / "report.html").read_text()
    assert "oracle" in page
    assert page.count("<svg") == 1
    assert fedrf.run(resume=best["folder"]).target_accuracy == best["accuracy"]  # a run directory like any other


@pytest.mark.ray
def test_as_many_trials_at_a_time_as_fit_in_one_group_of_wandb(ray_session, tmp_path):
    """Eight CPUs, and clients that need four: two trials at a time, and nobody waits for ever."""
    ray_session.stop_idle()
    space = space_file(tmp_path, train__lr={"default": 0.003, "values": [0.003, 0.01, 0.03]})
    keys = {
        **SMALL,
        "resources.cpus_per_client": 1,
        "resources.gpus_per_client": 0,
        "federation.delays": {"rendered": 0.2},  # longer than the second takes to start
        "track.wandb": "offline",
        "data.validation": 0.25,
        "track.select": "dev",
    }
    plan = make_plan("digits", keys, space=space, search="grid", early_stopping=False)
    folder = tmp_path / "sweep"
    begin(plan, folder, resume=False)
    outcomes, _ = run_sweep(plan, folder)
    assert [one.status for one in outcomes] == ["finished"] * 3
    spans = [
        ((Path(one.folder) / "config.yaml").stat().st_mtime, (Path(one.folder) / "summary.json").stat().st_mtime)
        for one in outcomes
    ]
    at_once = [sum(begins <= moment <= ends for begins, ends in spans) for moment, _ in spans]
    assert max(at_once) == 2
    for one in outcomes:
        assert one.score == -RunFolder(Path(one.folder)).read_summary()["scores"]["dev"]  # less risk is better
        (recorded,) = Path(one.folder).glob("wandb/offline-run-*/*.wandb")
        assert b"sweep-sweep" in recorded.read_bytes()


@pytest.mark.ray
def test_bayesian_search_survives_points_that_cannot_be(ray_session, tmp_path):
    """Optuna does not know that m may not exceed 2 N; the recipe's own N is not even in the list."""
    space = space_file(tmp_path, model__num_features={"default": 500, "values": [3]})
    plan = make_plan("digits", SMALL, space=space, search="bayes", samples=4, early_stopping=False)
    folder = tmp_path / "sweep"
    begin(plan, folder, resume=False)
    outcomes, complete = run_sweep(plan, folder)
    assert complete
    assert outcomes[0].point == {"model.num_features": 30}
    for one in outcomes:
        wanted = ("finished", None) if one.point["model.num_features"] == 30 else ("failed", "model.dim=8 must not")
        assert one.status == wanted[0]
        assert wanted[1] is None or wanted[1] in one.error
    assert len({one.status for one in outcomes}) == 2
    assert len(list(folder.glob("trials/*/metrics.jsonl"))) == 1  # the same point again is not run again


def test_scores_below_zero_are_scores_and_what_is_none_comes_last():
    scores = (-0.5, None, -0.2)
    outcomes = [Outcome(n, "finished", {}, 9, 9, score, None, 1, 1.0, "") for n, score in enumerate(scores, 1)]
    assert best(outcomes).number == 3
    assert [one.number for one in ranked(outcomes)] == [3, 1, 2]


def test_pictures_take_words_and_targets_without_labels():
    space = {"model.sigma": Parameter(default=1.0, values=["median", 1.0])}
    points = [{"model.sigma": value} for value in ("median", 1.0, 1.0)]
    outcomes = [Outcome(n, "finished", point, 9, 9, 0.1 * n, None, 1, 1.0, "") for n, point in enumerate(points, 1)]
    plan = make_plan("digits", search="grid").model_copy(update={"space": space})
    assert draw(outcomes, "model.sigma", space["model.sigma"], plan).count("<svg") == 1
