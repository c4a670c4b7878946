"""The best row, whichever way a score points."""

from typing import get_args

import pytest

from fedrf.adaptation.selection import BY_SOURCES, SIGNS, best, evaluations, merit
from fedrf.config.schema import TrackConfig


@pytest.mark.parametrize("score", SIGNS)
def test_the_sign_says_which_end_is_best(score):
    rows = [{score: 0.2}, {score: 0.9}, {score: 0.5}]
    assert best(rows, score) == {score: 0.9 if SIGNS[score] > 0 else 0.2}


@pytest.mark.parametrize("score", SIGNS)
def test_what_is_no_number_never_wins(score):
    rows = [{score: None}, {score: float("nan")}, {}, {score: float("inf")}, {score: -float("inf")}]
    assert best(rows, score) is None
    assert best([*rows, {score: 0.1}, *rows], score) == {score: 0.1}
    assert all(merit(row, score) < merit({score: 0.1}, score) for row in rows)


def test_of_equals_the_last():
    rows = [{"validation": 0.5, "round": 1}, {"validation": 0.5, "round": 2}, {"validation": 0.4, "round": 3}]
    assert best(rows, "validation")["round"] == 2


def test_every_score_can_be_selected():
    assert set(get_args(TrackConfig.model_fields["select"].annotation)) == set(SIGNS)


def test_the_scores_of_sources_are_means_of_their_newest_ones_and_their_last_ones_hold_afterwards():
    rows = [
        {"client": "t", "round": 1, "information": 0.0},
        {"client": "t", "round": 2, "information": 0.1},  # which may come before those of the sources
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
    seen = evaluations(rows, "t")
    assert [row["information"] for row in seen] == [0.0, 0.1, 0.2, 0.3, 0.4]
    # Nothing before all were heard; then, at a round that one of them skipped, its score of the round before.
    assert [row.get("validation") for row in seen] == pytest.approx([None, 0.5, 0.55, 0.8, 0.8])
    assert [row.get("dev") for row in seen] == [None] * 5
    assert best(seen, "validation") is seen[4]
    assert all(score not in row for row in rows if row["client"] == "t" for score in BY_SOURCES)
