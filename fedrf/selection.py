"""Which evaluation of a run is chosen: by a score that needs no labels of the target."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite
from typing import Any

# 1 where more is better, -1 where less is; `fedrf.scores` has what they are.
SIGNS: dict[str, int] = {"information": 1, "density": 1, "entropy": -1, "validation": 1, "dev": -1}

Row = dict[str, Any]


def merit(row: Row, score: str) -> float:
    """Return how good a row is by one of its scores: more is better, and least of all is what is no number."""
    value = row.get(score)
    return -inf if value is None or not isfinite(value) else SIGNS[score] * value


def best(rows: Iterable[Row], score: str) -> Row | None:
    """Return the row with the best score, the last of several; None if none has a number."""
    known = [row for row in rows if merit(row, score) > -inf]
    return max(reversed(known), key=lambda row: merit(row, score), default=None)
