"""Which evaluation of a run is chosen: by a score that needs no labels of the target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite
from statistics import fmean
from typing import Any

# 1 where more is better, -1 where less is; `fedrf.adaptation.scores` has what they are.
SIGNS: dict[str, int] = {"information": 1, "density": 1, "entropy": -1, "validation": 1, "dev": -1}
OF_SOURCES = ("validation", "dev")
AFTERWARDS = inf

Row = dict[str, Any]


def evaluations(rows: Iterable[Row], target: str) -> list[Row]:
    """Return the target's evaluations, each with the mean of the sources' newest scores up to that round.

    After the rounds these are their last ones. They judge W and C, which the target leaves alone from then on: its own
    steps differ in the target's scores only. Sources that were not yet heard of are missing, so nothing is compared
    before all were.
    """
    known = list(rows)
    judged = [row for row in known if row["client"] != target and any(merit(row, one) > -inf for one in OF_SOURCES)]
    judged.sort(key=_moment)
    sources = {row["client"] for row in judged}
    found = []
    for row in known:
        if row["client"] != target or "information" not in row:
            continue
        newest = {one["client"]: one for one in judged if _moment(one) <= _moment(row)}
        for score in OF_SOURCES if sources and len(newest) == len(sources) else ():
            values = [one[score] for one in newest.values() if merit(one, score) > -inf]
            if len(values) == len(sources):
                row = row | {score: fmean(values)}
        found.append(row)
    return found


def _moment(row: Row) -> float:
    return AFTERWARDS if row.get("final") or "step" in row else float(row["round"])


def merit(row: Mapping[str, Any], score: str) -> float:
    """Return how good a row is by one of its scores: more is better, and least of all is what is no number."""
    value = row.get(score)
    return -inf if value is None or not isfinite(value) else SIGNS[score] * value


def best(rows: Iterable[Row], score: str) -> Row | None:
    """Return the row with the best score, the last of several; None if none has a number."""
    known = [row for row in rows if merit(row, score) > -inf]
    return max(reversed(known), key=lambda row: merit(row, score), default=None)
