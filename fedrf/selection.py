"""Which evaluation of a run is chosen: by a score that needs no labels of the target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite
from statistics import fmean
from typing import Any

# 1 where more is better, -1 where less is; `fedrf.scores` has what they are.
SIGNS: dict[str, int] = {"information": 1, "density": 1, "entropy": -1, "validation": 1, "dev": -1}
OF_SOURCES = ("validation", "dev")
AFTERWARDS = -1

Row = dict[str, Any]


def evaluations(rows: Iterable[Row], target: str) -> list[Row]:
    """Return the target's evaluations, each with the mean of the sources' scores of the same round.

    After the rounds these are their last ones. They judge W and C, which the target leaves alone from then on: its own
    steps differ in the target's scores only.
    """
    known = list(rows)
    by_moment: dict[tuple[str, int], list[float]] = {}
    for row in known:
        for score in OF_SOURCES:
            if merit(row, score) > -inf and row["client"] != target:
                by_moment.setdefault((score, _moment(row)), []).append(row[score])
    means = {moment: fmean(values) for moment, values in by_moment.items()}
    return [
        row | {score: means[score, _moment(row)] for score in OF_SOURCES if (score, _moment(row)) in means}
        for row in known
        if row["client"] == target and "information" in row
    ]


def _moment(row: Row) -> int:
    return AFTERWARDS if row.get("final") or "step" in row else row["round"]


def merit(row: Mapping[str, Any], score: str) -> float:
    """Return how good a row is by one of its scores: more is better, and least of all is what is no number."""
    value = row.get(score)
    return -inf if value is None or not isfinite(value) else SIGNS[score] * value


def best(rows: Iterable[Row], score: str) -> Row | None:
    """Return the row with the best score, the last of several; None if none has a number."""
    known = [row for row in rows if merit(row, score) > -inf]
    return max(reversed(known), key=lambda row: merit(row, score), default=None)
