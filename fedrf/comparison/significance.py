"""Statistical tests of differences between variants: Wilcoxon's signed-rank test with Holm's correction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from statistics import mean
from typing import NamedTuple, TypeVar

import numpy as np

EXACT_PAIRS = 200  # up to this number the exact distribution takes milliseconds
Pair = TypeVar("Pair", bound=Hashable)
DIGITS = 9  # differences that agree to so many digits are equal: the rest is rounding error


class Difference(NamedTuple):
    """A variant against the reference, over pairs of runs that agree in all else; `ties` do not enter p."""

    variant: str
    mean: float
    p: float
    adjusted_p: float
    pairs: int
    wins: int
    losses: int
    ties: int


def paired_differences(reference: Mapping[Pair, float], others: Mapping[str, Mapping[Pair, float]]) -> list[Difference]:
    """Test each variant against the reference over the pairs that both have; variants without pairs are left out."""
    differences = {
        name: [round(values[key] - reference[key], DIGITS) for key in values if key in reference]
        for name, values in others.items()
    }
    differences = {name: values for name, values in differences.items() if values}
    ps = [signed_rank_p(values) for values in differences.values()]
    rows = []
    for (name, values), p, adjusted in zip(differences.items(), ps, holm(ps), strict=True):
        signs = Counter(np.sign(values).tolist())
        rows.append(Difference(name, mean(values), p, adjusted, len(values), signs[1.0], signs[-1.0], signs[0.0]))
    return rows


def signed_rank_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test; zeros are dropped, as Wilcoxon did.

    The p-value is exact, also with ties (tied absolute differences share their mean rank). Above `EXACT_PAIRS` pairs it
    is the normal approximation.

    >>> signed_rank_p([1.0, 2.0, 3.0])  # all signs are equal: 2 of 8 equally likely patterns
    0.25
    """
    from scipy import stats

    nonzero = np.array([difference for difference in differences if difference])
    if not len(nonzero):
        return 1.0
    if len(nonzero) > EXACT_PAIRS:
        return float(stats.wilcoxon(nonzero, method="approx").pvalue)
    ranks = (2 * stats.rankdata(np.abs(nonzero))).astype(int)  # doubled, because mean ranks may end in a half
    probabilities = np.ones(1)  # of each rank sum, if all signs are random
    for rank in ranks:
        probabilities = (np.pad(probabilities, (0, rank)) + np.pad(probabilities, (rank, 0))) / 2
    positive = int(ranks[nonzero > 0].sum())
    return float(min(1.0, 2 * min(probabilities[: positive + 1].sum(), probabilities[positive:].sum())))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple comparisons by Holm's step-down correction.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    adjusted = accumulate((min(1.0, (len(ps) - rank) * ps[index]) for rank, index in enumerate(order)), max)
    return [p for _, p in sorted(zip(order, adjusted, strict=True))]


def smallest_p(pairs: int) -> float:
    """Return the smallest p-value that this number of pairs can give, which is when all signs are equal."""
    return min(1.0, 2.0 ** (1 - pairs))
