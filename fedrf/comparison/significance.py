"""Whether differences between variants could be chance: Wilcoxon's signed-rank test, Holm's correction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from statistics import mean
from typing import NamedTuple, TypeVar

import numpy as np

EXACT_PAIRS = 200  # up to so many the exact distribution takes milliseconds
Pair = TypeVar("Pair", bound=Hashable)
DIGITS = 9  # differences of fractions are alike to rounding error, or not at all


class Difference(NamedTuple):
    """A variant against the reference, over pairs of runs that have all else in common; `ties` take no part in p."""

    variant: str
    mean: float
    p: float
    adjusted_p: float
    pairs: int
    wins: int
    losses: int
    ties: int


def differences(reference: Mapping[Pair, float], others: Mapping[str, Mapping[Pair, float]]) -> list[Difference]:
    """Compare each variant with the reference where both have a figure; those without any such pair are left out."""
    paired = {
        name: [round(figures[key] - reference[key], DIGITS) for key in figures if key in reference]
        for name, figures in others.items()
    }
    paired = {name: found for name, found in paired.items() if found}
    ps = [signed_rank_p(found) for found in paired.values()]
    rows = []
    for (name, found), p, adjusted in zip(paired.items(), ps, holm(ps), strict=True):
        signs = Counter(np.sign(found).tolist())
        rows.append(Difference(name, mean(found), p, adjusted, len(found), signs[1.0], signs[-1.0], signs[0.0]))
    return rows


def signed_rank_p(found: Sequence[float]) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test; zeros are dropped, as Wilcoxon did.

    Exact, also where absolute differences are alike (they share a mean rank); for very many pairs the normal
    approximation.

    >>> signed_rank_p([1.0, 2.0, 3.0])  # all signs alike: 2 of 8 equally likely patterns
    0.25
    """
    from scipy import stats

    there = np.array([one for one in found if one])
    if not len(there):
        return 1.0
    if len(there) > EXACT_PAIRS:
        return float(stats.wilcoxon(there, method="approx").pvalue)
    ranks = (2 * stats.rankdata(np.abs(there))).astype(int)  # twice: mean ranks may end in a half
    chances = np.ones(1)  # of each rank sum, if every sign were tossed
    for rank in ranks:
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    positive = int(ranks[there > 0].sum())
    return float(min(1.0, 2 * min(chances[: positive + 1].sum(), chances[positive:].sum())))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values that hold for all comparisons together (Holm's step-down correction).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    raised = accumulate((min(1.0, (len(ps) - place) * ps[index]) for place, index in enumerate(order)), max)
    return [p for _, p in sorted(zip(order, raised, strict=True))]


def smallest_p(pairs: int) -> float:
    """Return the least p that so many pairs can give: all signs alike."""
    return min(1.0, 2.0 ** (1 - pairs))
