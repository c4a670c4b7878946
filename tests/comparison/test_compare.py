"""Comparisons with real federations: their files, resuming, interruption, and runs that fail."""

import fcntl
import json
import os
import signal
from statistics import mean, stdev

import numpy as np
import pytest

from fedrf.adaptation.selection import best, evaluations
from fedrf.comparison import compare as module
from fedrf.comparison.analysis import choice_accuracies
from fedrf.comparison.compare import compare
from fedrf.comparison.export import as_json
from fedrf.comparison.plan import plan_comparison
from fedrf.comparison.results import CellResult
from fedrf.experiment.interrupts import Interrupts
from fedrf.experiment.results import RunFolder
from fedrf.runtime.local import LocalFederation
from tests.cli.calls import call, printed
from tests.conftest import TINY

KEYS = [f"{key}={value}" for key, value in {**TINY, "federation.mode": "sync"}.items() if key != "method"]
FAST = [*KEYS, "train.rounds=2", "adapt.steps=2", "track.evaluate_every=1"]


def make_plan(methods=("source-only", "fedrf-plus"), seeds=(0,), keys=FAST, **options):
    return plan_comparison("digits", keys, methods=methods, seeds=seeds, **options)


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/**/summary.json")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison") / "two"
    comparison, complete = compare(make_plan(targets=("street",), seeds=(0, 1)), folder, local=True)
    assert complete
    return comparison


def test_the_folder_holds_runs_and_tables(finished):
    assert {path.name for path in finished.folder.iterdir()} == {
        "runs",
        "table.md",
        "table.tex",
        "table.csv",
        "comparison.json",
        ".lock",
    }
    contents = json.loads((finished.folder / "comparison.json").read_text())
    assert contents == as_json(finished)
    assert contents["counts"] == {"finished": 4, "failed": 0, "unfinished": 0}
    for cell in contents["cells"]:
        summary = RunFolder(finished.folder / cell["folder"]).read_summary()
        assert (summary["method"], summary["target"], summary["seed"]) == (
            cell["variant"],
            cell["target"],
            cell["seed"],
        )
        assert summary["target_accuracy"] == {kind: cell[kind] for kind in ("final", "selected", "oracle")}
        assert summary["communication"]["bytes_total"] == cell["bytes_total"]


def test_the_first_table_shows_the_mean_after_the_last_round(finished):
    accuracies = [
        RunFolder(path.parent).read_summary()["target_accuracy"]["final"]
        for path in finished.folder.glob("runs/*-to-street/fedrf-plus/*/summary.json")
    ]
    assert len(accuracies) == 2
    written = f"{100 * mean(accuracies):.1f} ± {100 * stdev(accuracies):.1f}"
    assert written in (finished.folder / "table.md").read_text()


def test_a_repeated_call_runs_nothing_and_a_larger_call_only_missing_runs(finished, capsys):
    before = times(finished.folder)
    _, complete = compare(finished.plan, finished.folder, local=True)
    assert complete
    assert times(finished.folder) == before
    assert "4 of 4 runs are already finished" in capsys.readouterr().err
    larger = make_plan(("source-only", "fedrf-plus", "fedavg"), targets=("street",))
    comparison, _ = compare(larger, finished.folder, local=True)
    assert times(finished.folder).items() > before.items()
    assert len(times(finished.folder)) == 5
    assert as_json(comparison)["counts"]["finished"] == 3
    assert "[3/3] fedavg, → street, seed 0: " in capsys.readouterr().err


def test_variants_with_the_same_configuration_share_one_run(tmp_path):
    plan = make_plan(("fedrf-plus",), targets=("street",), vary=["align.gamma=0.005", "align.weight=1"])
    comparison, _ = compare(plan, tmp_path / "once", local=True)
    assert len(times(tmp_path / "once")) == 1
    first, second = as_json(comparison)["cells"]
    assert (first["variant"], second["variant"]) == ("align.gamma=0.005", "align.weight=1")
    assert first["final"] == second["final"] is not None
    choices = choice_accuracies(comparison)
    assert choices["by information"] == choices["oracle (chosen with target labels)"]
    assert first["folder"] == second["folder"]


class InterruptedOnce(LocalFederation):
    """Raises SIGINT in the middle of the second run."""

    runs = 0

    def __init__(self, *arguments):
        InterruptedOnce.runs += 1
        super().__init__(*arguments)

    def wait(self, seconds):
        if InterruptedOnce.runs == 2 and max(self.call("poll", 0).rounds.values()) >= 3:
            InterruptedOnce.runs += 1
            signal.raise_signal(signal.SIGINT)
        return super().wait(0.02)


def test_an_interrupted_comparison_resumes_from_the_checkpoint(tmp_path, monkeypatch):
    slow = [*KEYS, "federation.checkpoint_seconds=0", "train.rounds=6", "federation.delays={rendered: 0.05}"]
    plan = make_plan(keys=slow, targets=("street",))
    with monkeypatch.context() as patch:
        patch.setattr("fedrf.experiment.run.LocalFederation", InterruptedOnce)
        comparison, complete = compare(plan, tmp_path / "out", local=True)
    assert not complete
    assert as_json(comparison)["counts"] == {"finished": 1, "failed": 0, "unfinished": 1}
    assert "| fedrf-plus | – |" in (tmp_path / "out/table.md").read_text()
    (interrupted,) = tmp_path.glob("out/runs/*/fedrf-plus/*")
    before = RunFolder(interrupted).rows()
    assert 2 <= max(row["round"] for row in before) < 6
    resumed, complete = compare(plan, tmp_path / "out", local=True)
    assert complete
    assert as_json(resumed)["counts"]["finished"] == 2
    assert as_json(resumed)["cells"][0] == as_json(comparison)["cells"][0]
    assert RunFolder(interrupted).rows()[: len(before)] == before  # resumed, not started again
    assert RunFolder(interrupted).read_summary()["rounds"] == 6


def test_an_interruption_between_two_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(module.ProgressPrinter, "run_ended", lambda *_: signal.raise_signal(signal.SIGTERM))
    comparison, complete = compare(make_plan(), tmp_path / "out", local=True)
    assert not complete
    assert as_json(comparison)["counts"] == {"finished": 1, "failed": 0, "unfinished": 1}
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.fixture
def feature_files(tmp_path):
    """Three domains; the last has a class that the others lack, so that it cannot be the target."""
    random = np.random.RandomState(0)
    for name, labels in {"a": [0, 1], "b": [0, 1], "c": [0, 1, 2]}.items():
        np.savez(tmp_path / f"{name}.npz", X=random.randn(30, 5), y=np.resize(labels, 30))
    return tmp_path


def test_data_that_one_of_the_runs_cannot_use_is_refused_before_the_first(feature_files, monkeypatch, capsys):
    keys = [*FAST, "data.name=features", f"data.root={feature_files}", "model.extractor=identity"]
    options = ["--methods", "fedrf-plus", "--targets", "a,c", "--local", "--out", feature_files / "out"]
    code, out, err = call(["compare", *keys, *options], monkeypatch, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "c.npz: label 2 is not one of the classes 0, 1" in err
    assert not (feature_files / "out").exists()


def test_a_failed_run_is_recorded_and_the_others_continue(tmp_path, monkeypatch, capsys):
    def run_in(config, *arguments, **options):
        if config.data.target == "street":
            raise OSError("no room")
        return succeed(config, *arguments, **options)

    succeed = module.run_in
    monkeypatch.setattr(module, "run_in", run_in)
    options = ["--methods", "fedrf-plus,source-only", "--targets", "street,rendered", "--seeds", "0", "--local"]
    arguments = ["compare", "digits", *FAST, *options, "--json", "--out", tmp_path / "out"]
    code, out, err = call(arguments, monkeypatch, capsys)
    assert code == 1
    contents = json.loads(out)
    assert contents["counts"] == {"finished": 2, "failed": 2, "unfinished": 0}
    failed = contents["cells"][0]
    assert (failed["target"], failed["status"], failed["final"]) == ("street", "failed", None)
    assert failed["error"] == "OSError: no room"
    assert err.endswith(f"fedrf: 2 of 4 runs failed; see {tmp_path}/out/table.csv\n")
    headline = (tmp_path / "out/table.md").read_text().split("\n**")[1]  # the first table
    assert "| failed |" in headline
    assert "(1 of 2 runs)" in headline


def test_only_json_is_on_standard_output_and_invalid_calls_write_nothing(finished, tmp_path, monkeypatch, capsys):
    options = ["--methods", "source-only,fedrf-plus", "--targets", "street", "--seeds", "0,1", "--local"]
    code, out, _ = call(["compare", "digits", *FAST, *options, "--json", "--out", finished.folder], monkeypatch, capsys)
    assert code == 0
    assert json.loads(out)["seeds"] == [0, 1]
    (tmp_path / "thesis.md").write_text("mine")
    for arguments, message in (
        (["digits", "--out", tmp_path], "is not empty and holds no comparison"),
        (["digits", "--out", tmp_path / "thesis.md"], "is a file"),
        (["digits", "--seeds", "0,x"], "--seeds takes whole numbers, at least 0, separated by commas; got 'x'"),
        (["digits", "--methods", "fedavg,"], "--methods takes words separated by commas; got 'fedavg,'"),
    ):
        code, out, err = call(["compare", *arguments], monkeypatch, capsys)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.md"]


def test_an_interrupted_call_exits_with_130_and_says_how_to_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module.ProgressPrinter, "run_ended", lambda *_: signal.raise_signal(signal.SIGINT))
    options = ["--vary", "align.gamma=0.001,1", "--targets", "street", "--seeds", "0", "--local"]
    code, out, err = call(["compare", "digits", *FAST, *options, "--out", tmp_path / "out"], monkeypatch, capsys)
    assert code == 130
    assert "align.gamma=0.001" in out
    assert f"repeat the call with --out {tmp_path}/out" in err
    assert (tmp_path / "out/align.gamma.svg").exists()


def test_help_explains_options_and_files(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    text = printed(["compare", "--help"], monkeypatch, capsys)
    for word in ("--methods", "--targets", "--sources", "--seeds", "--ablate", "--vary", "table.tex", "Examples"):
        assert word in text


@pytest.mark.ray
def test_ray_gives_the_same_results(finished, tmp_path, ray_session):
    keys = [*FAST, "resources.accelerator=cpu", "resources.clients_per_actor=4"]  # one process starts faster than four
    comparison, complete = compare(make_plan(keys=keys, targets=("street",)), tmp_path / "ray", session=ray_session)
    assert complete
    local = {(cell["variant"], cell["task"], cell["seed"]): cell for cell in as_json(finished)["cells"]}
    for cell in as_json(comparison)["cells"]:
        same = local[cell["variant"], cell["task"], cell["seed"]]
        assert [cell[key] for key in ("final", "bytes_total")] == [same[key] for key in ("final", "bytes_total")]


def test_two_comparisons_cannot_run_in_one_folder(finished):
    with (finished.folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match=r"^--out: another comparison is running in "):
            compare(finished.plan, finished.folder, local=True)
    assert compare(finished.plan, finished.folder, local=True)[1]


def test_another_score_selects_again_from_finished_runs(finished):
    folder = next(iter(finished.runs.values())).folder
    rows = evaluations(RunFolder(folder).rows(), RunFolder(folder).read_summary()["target"])
    for score in ("information", "entropy", "density"):
        assert CellResult.read(folder, score).accuracy("selected") == best(rows, score)["accuracy"]


def test_an_interrupt_at_the_end_of_a_run_reaches_the_comparison():
    with Interrupts() as outer:
        with Interrupts() as inner:
            os.kill(os.getpid(), signal.SIGINT)
            assert inner.wanted
            assert not outer.wanted
        assert outer.wanted
