"""Early stopping by score alone, also in a resumed sweep."""

import json
from types import SimpleNamespace

from tune.early_stopping import ResumableASHA
from tune.space import config_at
from tune.trial import INVALID_SCORE, SCORE, TIME, SharedSetup, as_metrics, run_length

GIVEN = {"method": "fedrf-plus", "train": {"rounds": 80}, "adapt": {"when": "never"}}


def make_trial(name, folder, lr=0.1):
    shared = SharedSetup(GIVEN, folder, {}, [], "PACK")
    return SimpleNamespace(trial_id=name, config={"shared": shared, "point": {"train.lr": lr}}, status="RUNNING")


def make_scheduler(trials, interval=1):
    scheduler = ResumableASHA(config_at(GIVEN, {}), interval)
    scheduler.set_search_properties(SCORE, "max")
    for trial in trials:
        scheduler.on_trial_add(None, trial)
    return scheduler


def metrics(progress, score, **more):
    return {TIME: progress, SCORE: score, **more}


def test_a_trial_with_a_low_score_is_stopped_and_recorded(tmp_path):
    good, bad = make_trial("good", tmp_path), make_trial("bad", tmp_path, 0.2)
    scheduler = make_scheduler([good, bad])
    assert scheduler.on_trial_result(None, good, metrics(9, 1.0, accuracy=0.1)) == scheduler.CONTINUE
    # A higher accuracy must not matter.
    assert scheduler.on_trial_result(None, bad, metrics(9, 0.5, accuracy=0.9)) == scheduler.STOP
    folder = tmp_path / config_at(GIVEN, bad.config["point"]).digest
    assert json.loads((folder / "stopped.json").read_text()) == metrics(9, 0.5, accuracy=0.9)
    assert scheduler.on_trial_result(None, good, metrics(80, 0.0)) == scheduler.CONTINUE  # no trial is stopped late


def test_no_trial_is_stopped_before_the_first_average_of_classifiers(tmp_path):
    first, second = make_trial("first", tmp_path), make_trial("second", tmp_path, 0.2)
    scheduler = make_scheduler([first, second], interval=50)
    for progress, expected in ((10, scheduler.CONTINUE), (40, scheduler.CONTINUE), (60, scheduler.STOP)):
        scheduler.on_trial_result(None, first, metrics(progress, 1.0))
        assert scheduler.on_trial_result(None, second, metrics(progress, 0.0)) == expected


def test_a_resumed_sweep_restores_the_scores_at_each_rung(tmp_path):
    earlier = make_trial("earlier", tmp_path)
    folder = tmp_path / config_at(GIVEN, earlier.config["point"]).digest
    folder.mkdir()
    rows = [{"client": "handwritten", "round": n, "information": 0.1 * n, "entropy": 0} for n in (5, 10, 15)]
    rows += [{"client": "street", "round": 10, "information": 99.0}, {"client": "handwritten", "round": 10, "loss": 1}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    later = make_trial("later", tmp_path, 0.2)
    scheduler = make_scheduler([earlier, later])
    assert scheduler.on_trial_result(None, later, metrics(10, 0.99)) == scheduler.STOP


def test_run_length_counts_rounds_and_steps():
    assert run_length(config_at(GIVEN, {})) == 81
    assert run_length(config_at(GIVEN, {"adapt.when": "last", "adapt.steps": 7})) == 88
    assert run_length(config_at(GIVEN, {"adapt.when": "joint"})) == 81


def test_predictions_that_are_not_finite_have_the_lowest_score(tmp_path):
    row = {"client": "handwritten", "round": 9, "information": float("nan")}
    assert as_metrics(row, "information")[SCORE] == INVALID_SCORE
    assert as_metrics(row | {"information": None}, "information")[SCORE] == INVALID_SCORE
    good, bad = make_trial("good", tmp_path), make_trial("bad", tmp_path, 0.2)
    scheduler = make_scheduler([good, bad])
    scheduler.on_trial_result(None, good, metrics(9, 0.0))
    assert scheduler.on_trial_result(None, bad, as_metrics(row, "information")) == scheduler.STOP


def test_the_score_is_that_of_track_select_and_less_entropy_is_better():
    row = {"client": "handwritten", "round": 9, "step": 2, "information": 0.4, "density": 3.0, "entropy": 0.7}
    assert as_metrics(row, "density") == metrics(11, 3.0, accuracy=None)
    assert as_metrics(row, "entropy") == metrics(11, -0.7, accuracy=None)


def test_an_invalid_point_does_not_break_the_scheduler(tmp_path):
    invalid = make_trial("invalid", tmp_path)
    invalid.config["point"] = {"model.dim": 64, "model.num_features": 3}
    scheduler = make_scheduler([invalid])
    assert scheduler.on_trial_result(None, invalid, metrics(1, 0.0)) == scheduler.CONTINUE
