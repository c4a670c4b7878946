"""The best row, whichever way a score points."""

import pytest

from fedrf.selection import SIGNS, best, merit


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
