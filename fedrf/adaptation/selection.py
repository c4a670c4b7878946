"""Selection of one evaluation of a run by a score that needs no labels of the target.

`fedrf.config.registry.SCORES` finds scores by name; `fedrf.adaptation.scores` explains the built-in ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from fedrf.config.registry import SCORES
from fedrf.errors import reason

if TYPE_CHECKING:
    from torch import Tensor

Row = dict[str, Any]


@dataclass(frozen=True)
class Score:
    """A figure that evaluations are compared by.

    Attributes
    ----------
    higher_is_better
        Whether the largest value is selected, or the smallest.
    by_sources
        Whether sources compute it, on samples that they hold out, and not the target.
    needs_embedding
        Whether it needs Σℓ of the target.
    caution
        Why it should not select, if it has chosen badly in measurements.
    compute
        From the target's class probabilities, n × classes; None for scores that every evaluation has.
    """

    higher_is_better: bool = True
    by_sources: bool = False
    needs_embedding: bool = False
    caution: str = ""
    compute: Callable[[Tensor], float] | None = None


BUILT_IN = {
    "information": Score(),
    "density": Score(caution="it also prefers predictions that are all alike; prefer mixval or classami"),
    "entropy": Score(higher_is_better=False),
    "bnm": Score(caution="it has preferred confident, wrong predictions; prefer mixval or classami"),
    "classami": Score(),
    "mixval": Score(),
    "validation": Score(by_sources=True),
    "importance": Score(by_sources=True, needs_embedding=True),
    "dev": Score(higher_is_better=False, by_sources=True, needs_embedding=True),
}
BY_SOURCES = tuple(name for name, score in BUILT_IN.items() if score.by_sources)


def accept(definition: object) -> Score:
    """Return a score, or the score that a function of class probabilities is."""
    if any(definition is score for score in BUILT_IN.values()):
        return cast(Score, definition)
    definition = definition() if isinstance(definition, type) else definition
    if not isinstance(definition, Score) and not callable(definition):
        raise ValueError(f"{definition!r} is neither a Score nor a function of class probabilities")
    if not isinstance(definition, Score):
        definition = Score(getattr(definition, "higher_is_better", True), compute=definition)
    if definition.compute is None or definition.by_sources or not isinstance(definition.higher_is_better, bool):
        raise ValueError("a score needs compute, a higher_is_better that is True or False, and no by_sources")
    compute_score(definition.compute)
    return definition


def compute_score(compute: Callable[[Tensor], float], probabilities: Tensor | None = None) -> float:
    """Return the score of class probabilities, or of a small example, as a number."""
    import torch

    rows = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]) if probabilities is None else probabilities
    try:
        return float(compute(rows))
    except Exception as error:  # code of others can raise anything
        raise ValueError(f"the score must return a number ({type(error).__name__}: {reason(error)})") from error


def evaluations(rows: Iterable[Row], target: str) -> list[Row]:
    """Return the target's evaluations, each with the mean of the sources' newest scores up to that round.

    After the last round these are the sources' last scores. They judge W and C, which the target does not change from
    then on, so that evaluations after the rounds differ in the target's scores only. An evaluation has no such mean
    before all sources have sent a score.
    """
    known = list(rows)
    judged = [row for row in known if row["client"] != target and any(merit(row, name) > -inf for name in BY_SOURCES)]
    judged.sort(key=_moment)
    sources = {row["client"] for row in judged}
    selectable = []
    for row in known:
        if row["client"] != target or "information" not in row:
            continue
        newest = {score["client"]: score for score in judged if _moment(score) <= _moment(row)}
        for score in BY_SOURCES if sources and len(newest) == len(sources) else ():
            values = [latest[score] for latest in newest.values() if merit(latest, score) > -inf]
            if len(values) == len(sources):
                row = row | {score: fmean(values)}
        selectable.append(row)
    return selectable


def _moment(row: Row) -> float:
    return inf if row.get("final") or "step" in row else float(row["round"])


def merit(row: Mapping[str, Any], score: str) -> float:
    """Return a score with the sign that makes higher better; −∞ if it is missing or not a finite number."""
    value = row.get(score)
    return -inf if value is None or not isfinite(value) else value if SCORES.find(score).higher_is_better else -value


def best(rows: Iterable[Row], score: str) -> Row | None:
    """Return the last of the rows with the best score; None if no row has one."""
    known = [row for row in rows if merit(row, score) > -inf]
    return max(reversed(known), key=lambda row: merit(row, score), default=None)
