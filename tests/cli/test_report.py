"""`fedrf report`, also for runs of earlier versions, whose checkpoints cannot be continued."""

import json
from copy import deepcopy

import pytest
import yaml

from fedrf.config.loader import RETIRED
from tests.cli.calls import call, printed

# As version 0.1 wrote them, without most of the keys that have not changed.
OLD_CONFIG = {
    "method": "fedrf-plus",
    "seed": 0,
    "data": {"name": "digits", "sources": ["rendered", "street"], "target": "handwritten", "pooled": "none"},
    "model": {"extractor": "gradients", "normalization": "none"},
    "train": {"rounds": 2},
    "federation": {"mode": "async", "messages": "same/same/same", "shows": "average", "encryption": "none"},
}
OLD_ROWS = [
    {"client": "street", "round": 1, "loss": 2.46, "classification": 2.46, "seconds": 0.02, "waited": 0.01},
    {"client": "handwritten", "round": 1, "mmd": 0.008, "seconds": 0.01, "waited": 0.002},
    {"client": "handwritten", "round": 2, "accuracy": 0.3125, "information": 0.05, "density": 3.7, "entropy": 2.0},
    {"client": "handwritten", "round": 2, "step": 4, "loss": 1.5},
    {"client": "handwritten", "round": 2, "accuracy": 0.4375, "information": 0.06, "final": 1},
]
OLD_SUMMARY = {
    "method": "fedrf-plus",
    "dataset": "digits",
    "sources": ["rendered", "street"],
    "target": "handwritten",
    "seed": 0,
    "status": "finished",
    "rounds": 2,
    "target_accuracy": {"final": 0.4375, "selected": 0.4375, "oracle": 0.4375},
    "target_information": 0.06,
    "scores": {"information": 0.06},
    "source_accuracy": {"rendered": 0.5, "street": 0.8},
    "communication": {
        "bytes_total": 1_983_320,
        "bytes_per_round": 991_660.0,
        "bytes_by_kind": {"mean_embedding": 128_000, "companion": 0, "greeting": 160, "aligner": 1_855_160},
        "by_direction": {"up": {"greeting": 160}, "down": {"mean_embedding": 72_000}},
        "refused": {},
        "staleness": {"0": 9},
    },
    "seconds": {"total": 5.98, "per_round": 0.06},
    "measured": {"sigma": 1.012, "informative_gamma": None},
    "config_hash": "b1941cee1af0",
    "failures": [],
    "notes": [],
}


def write_old_run(folder, config=OLD_CONFIG, **summary):
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in OLD_ROWS))
    (folder / "summary.json").write_text(json.dumps(OLD_SUMMARY | summary, indent=1) + "\n")
    return folder


def test_runs_of_an_earlier_version_are_reported(tmp_path, monkeypatch, capsys, drawn_curves):
    runs = [write_old_run(tmp_path / "done"), write_old_run(tmp_path / "stopped", status="interrupted", seed=7)]
    out = printed(["report", *runs, "--out", tmp_path / "page.html"], monkeypatch, capsys)
    assert out == f"Written to {tmp_path}/page.html\n"
    page = (tmp_path / "page.html").read_text()
    for text in ("2 runs", "fedrf-plus → handwritten, seed 7", "interrupted", "43.8%", "2.0 MB", "companion"):
        assert text in page
    assert page.count("<svg") == 2
    assert "messages: same/same/same" in page


@pytest.mark.filterwarnings("default:left out")
def test_directories_without_a_run_that_has_ended_are_left_out(tmp_path, monkeypatch, capsys):
    done, waiting, broken = (write_old_run(tmp_path / name) for name in ("done", "waiting", "broken"))
    (waiting / "summary.json").unlink()
    (waiting / "metrics.jsonl").unlink()
    (broken / "summary.json").write_text('{"method": "fed')  # by an earlier version, on a full disk
    others = [waiting, broken, tmp_path / "notes.txt"]
    page = tmp_path / "page.html"
    code, out, err = call(["report", waiting, done, *others[1:], "--out", page], monkeypatch, capsys)
    assert (code, out) == (0, f"Written to {page}\n")
    assert "1 run<" in page.read_text()
    reasons = (
        "has no summary.json: the run has not ended yet",
        "has a file that is not complete",
        "is not a run directory",
    )
    for line, path, reason in zip(err.splitlines(), others, reasons, strict=True):
        assert line.startswith(f"fedrf: warning: left out: {path} {reason}")

    page.unlink()
    code, out, err = call(["report", *others, "--out", page], monkeypatch, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert all(f"{path} {reason}" in err for path, reason in zip(others, reasons, strict=True))
    assert not page.exists()


@pytest.mark.parametrize("key", RETIRED)
def test_an_unfinished_run_of_an_earlier_version_is_not_continued(key, tmp_path, monkeypatch, capsys):
    config = deepcopy(OLD_CONFIG)
    for other in RETIRED:
        section, _, name = other.partition(".")
        if other != key:
            del config[section][name]
    run = write_old_run(tmp_path / "run", config, status="interrupted")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    code, out, err = call(["run", "--resume", run, "--local"], monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err == (
        f"fedrf: {run} was written by an earlier version of fedrf ({key} is no longer a key), whose checkpoints cannot "
        "be continued; start a new run\n"
    )
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
