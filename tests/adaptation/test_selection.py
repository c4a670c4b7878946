"""The best row by each score, whether higher or lower is better."""

import pytest

from fedrf.adaptation.selection import BUILT_IN, BY_SOURCES, best, evaluations, merit
from fedrf.config.loader import load_config
from fedrf.experiment.resolve import warnings_about


@pytest.mark.parametrize("score", BUILT_IN)
def test_the_best_value_is_the_highest_or_the_lowest(score):
    rows = [{score: 0.2}, {score: 0.9}, {score: 0.5}]
    assert best(rows, score) == {score: 0.9 if BUILT_IN[score].higher_is_better else 0.2}


@pytest.mark.parametrize("score", BUILT_IN)
def test_missing_and_infinite_values_are_never_selected(score):
    rows = [{score: None}, {score: float("nan")}, {}, {score: float("inf")}, {score: -float("inf")}]
    assert best(rows, score) is None
    assert best([*rows, {score: 0.1}, *rows], score) == {score: 0.1}
    assert all(merit(row, score) < merit({score: 0.1}, score) for row in rows)


def test_the_last_of_equal_values_is_selected():
    rows = [{"validation": 0.5, "round": 1}, {"validation": 0.5, "round": 2}, {"validation": 0.4, "round": 3}]
    assert best(rows, "validation")["round"] == 2


@pytest.mark.parametrize("score", BUILT_IN)
def test_every_score_can_be_selected(score):
    assert (
        load_config(None, {"method": "fedrf-plus", "track.select": score, "data.validation": 0.2}).track.select == score
    )


def test_the_scores_are_those_that_need_no_labels_of_the_target():
    by_target = {"information", "density", "entropy", "bnm", "classami", "mixval"}
    assert set(BUILT_IN) == by_target | {"validation", "importance", "dev"}
    assert {score for score, definition in BUILT_IN.items() if not definition.higher_is_better} == {"entropy", "dev"}
    assert set(BY_SOURCES) == {"validation", "importance", "dev"}


def test_an_evaluation_has_the_mean_of_the_newest_scores_of_the_sources():
    rows = [
        {"client": "t", "round": 1, "information": 0.0},
        {"client": "t", "round": 2, "information": 0.1},  # may arrive before those of the sources
        {"client": "a", "round": 2, "validation": 0.4, "dev": 1.0},
        {"client": "b", "round": 2, "validation": 0.6, "dev": None},
        {"client": "t", "round": 3, "loss": 0.1},
        {"client": "a", "round": 4, "validation": 0.5},
        {"client": "t", "round": 4, "information": 0.2},
        {"client": "t", "round": 4, "step": 1, "information": 0.3},
        {"client": "t", "round": 4, "information": 0.4, "final": 1},
        {"client": "a", "round": 4, "validation": 0.9, "information": 9, "final": 1},
        {"client": "b", "round": 4, "validation": 0.7, "information": 9, "final": 1},
    ]
    selectable = evaluations(rows, "t")
    assert [row["information"] for row in selectable] == [0.0, 0.1, 0.2, 0.3, 0.4]
    # None before all sources have sent a score; for a round that one of them skipped, its previous score; after the
    # last round, the last scores.
    assert [row.get("validation") for row in selectable] == pytest.approx([None, 0.5, 0.55, 0.8, 0.8])
    assert [row.get("dev") for row in selectable] == [None] * 5
    assert best(selectable, "validation") is selectable[4]
    assert all(score not in row for row in rows if row["client"] == "t" for score in BY_SOURCES)


def test_a_score_that_has_chosen_badly_comes_with_a_warning():
    (text,) = warnings_about(load_config(None, {"track.select": "density"}))
    assert text.startswith("track.select=density: it also prefers predictions that are all alike")
    assert warnings_about(load_config(None, {"track.select": "mixval"})) == []
