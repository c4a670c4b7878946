"""Early stopping by score alone, also when a sweep has been resumed."""

import json
from types import SimpleNamespace

import pytest

from tune.halving import Halving
from tune.space import varied
from tune.trial import NOTHING_TOLD, SCORE, TIME, Ground, as_result, length

GIVEN = {"train": {"rounds": 80}, "adapt": {"when": "never"}}


def trial(name, folder, lr=0.1):
    ground = Ground(GIVEN, folder, {}, [], "PACK")
    return SimpleNamespace(trial_id=name, config={"ground": ground, "point": {"train.lr": lr}}, status="RUNNING")


@pytest.fixture
def make():
    def made(interval=1):
        halving = Halving(varied(GIVEN, {}), interval)
        halving.set_search_properties(SCORE, "max")
        return halving

    return made


def result(progress, score, **more):
    return {TIME: progress, SCORE: score, **more}


def test_who_falls_behind_is_stopped_and_stays_stopped(make, tmp_path):
    halving, good, bad = make(), trial("good", tmp_path), trial("bad", tmp_path, 0.2)
    for one in (good, bad):
        halving.on_trial_add(None, one)
    assert halving.on_trial_result(None, good, result(9, 1.0, accuracy=0.1)) == halving.CONTINUE
    # More accurate, which nobody may know.
    assert halving.on_trial_result(None, bad, result(9, 0.5, accuracy=0.9)) == halving.STOP
    folder = tmp_path / varied(GIVEN, bad.config["point"]).digest
    assert json.loads((folder / "stopped.json").read_text()) == result(9, 0.5, accuracy=0.9)
    assert halving.on_trial_result(None, good, result(80, 0.0)) == halving.CONTINUE  # nobody is stopped at the end


def test_nobody_is_judged_before_the_classifiers_met(make, tmp_path):
    halving, first, second = make(50), trial("first", tmp_path), trial("second", tmp_path, 0.2)
    for one in (first, second):
        halving.on_trial_add(None, one)
    for progress, expected in ((10, halving.CONTINUE), (40, halving.CONTINUE), (60, halving.STOP)):
        halving.on_trial_result(None, first, result(progress, 1.0))
        assert halving.on_trial_result(None, second, result(progress, 0.0)) == expected


def test_a_resumed_sweep_remembers_what_trials_had_at_each_rung(make, tmp_path):
    earlier = trial("earlier", tmp_path)
    folder = tmp_path / varied(GIVEN, earlier.config["point"]).digest
    folder.mkdir()
    rows = [{"client": "handwritten", "round": n, "information": 0.1 * n, "entropy": 0} for n in (5, 10, 15)]
    rows += [{"client": "street", "round": 10, "information": 99.0}, {"client": "handwritten", "round": 10, "loss": 1}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    halving, later = make(), trial("later", tmp_path, 0.2)
    for one in (earlier, later):
        halving.on_trial_add(None, one)
    assert halving.on_trial_result(None, later, result(10, 0.99)) == halving.STOP


def test_a_trial_is_as_long_as_its_rounds_and_steps():
    assert length(varied(GIVEN, {})) == 81
    assert length(varied(GIVEN, {"adapt.when": "last", "adapt.steps": 7})) == 88
    assert length(varied(GIVEN, {"adapt.when": "joint"})) == 81


def test_predictions_that_are_not_numbers_never_win(make, tmp_path):
    row = {"client": "handwritten", "round": 9, "information": float("nan")}
    assert as_result(row, "information")[SCORE] == NOTHING_TOLD
    assert as_result(row | {"information": None}, "information")[SCORE] == NOTHING_TOLD
    halving, good, bad = make(), trial("good", tmp_path), trial("bad", tmp_path, 0.2)
    for one in (good, bad):
        halving.on_trial_add(None, one)
    halving.on_trial_result(None, good, result(9, 0.0))
    assert halving.on_trial_result(None, bad, as_result(row, "information")) == halving.STOP


def test_another_score_may_decide_and_less_entropy_is_more_worth():
    row = {"client": "handwritten", "round": 9, "step": 2, "information": 0.4, "density": 3.0, "entropy": 0.7}
    assert as_result(row, "density") == result(11, 3.0, accuracy=None)
    assert as_result(row, "entropy") == result(11, -0.7, accuracy=None)


def test_a_point_whose_values_do_not_go_together_is_no_reason_to_fall(make, tmp_path):
    broken = trial("broken", tmp_path)
    broken.config["point"] = {"model.dim": 64, "model.num_features": 3}
    halving = make()
    halving.on_trial_add(None, broken)
    assert halving.on_trial_result(None, broken, result(1, 0.0)) == halving.CONTINUE
