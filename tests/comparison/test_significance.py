"""Statistical tests against hand-computed cases, an enumeration of all sign patterns, and scipy."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from fedrf.comparison.significance import EXACT_PAIRS, holm, paired_differences, signed_rank_p, smallest_p


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1.0], 1.0),
        ([1.0, 2.0, 3.0], 2 / 8),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 2 / 32),
        ([-1.0, 2.0, 3.0, 4.0, 5.0], 4 / 32),  # rank sums of at most 1: no sign, or the first
        ([1.0, 1.0, -1.0], 1.0),  # mean ranks 2, 2, 2: a sum of at most 2 has probability 4/8, doubled 1
        ([2.0, 2.0, 2.0, -1.0], 4 / 16),  # ranks 3, 3, 3, 1: a sum of at most 1 has probability 2/16
        ([0.0, 0.0, 1.0, 2.0, 3.0], 2 / 8),  # zeros are dropped
        ([0.0, 0.0], 1.0),
    ],
)
def test_p_matches_hand_computed_cases(differences, p):
    assert signed_rank_p(differences) == pytest.approx(p)
    assert signed_rank_p([-difference for difference in differences]) == pytest.approx(p)


def test_exact_p_without_ties_matches_scipy():
    for seed in range(5):
        differences = np.random.RandomState(seed).normal(0.4, 1, 17)
        assert signed_rank_p(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)


def test_exact_p_with_ties_matches_an_enumeration_of_all_signs():
    sizes = np.array([1, 1, 2, 3, 3, 3, 5, 7, 7])
    ranks = stats.rankdata(sizes)
    sums = np.array([ranks[np.array(signs)].sum() for signs in product([False, True], repeat=len(sizes))])
    observed = np.array([1, 1, -1, 1, 1, -1, 1, 1, 1])
    positive = ranks[observed > 0].sum()
    expected = min(1.0, 2 * min((sums <= positive).mean(), (sums >= positive).mean()))
    assert signed_rank_p(sizes * observed) == pytest.approx(expected)


def test_many_pairs_use_the_approximation_of_scipy():
    differences = np.random.RandomState(0).normal(0.1, 1, EXACT_PAIRS + 100)
    approximate = stats.wilcoxon(differences, method="approx").pvalue
    assert signed_rank_p(differences) == pytest.approx(approximate)
    fewer = differences[:EXACT_PAIRS]
    assert signed_rank_p(fewer) == pytest.approx(stats.wilcoxon(fewer, method="approx").pvalue, rel=0.05)


def test_holm_matches_hand_computed_values():
    # sorted: 0.005·4, 0.01·3, 0.03·2, 0.04·1, and no value below the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_smallest_p_is_reached():
    assert [smallest_p(pairs) for pairs in (1, 5, 6)] == [1.0, 0.0625, 0.03125]
    assert signed_rank_p([1.0] * 6) == pytest.approx(smallest_p(6))


def test_only_common_pairs_count_and_rounding_errors_are_ties():
    reference = {"a": 0.1 + 0.2, "b": 0.5, "c": 0.5}
    (row,) = paired_differences(reference, {"other": {"a": 0.3, "b": 0.75, "d": 1.0}, "strange": {"d": 0.0}})
    assert (row.variant, row.pairs, row.wins, row.losses, row.ties) == ("other", 2, 1, 0, 1)
    assert row.mean == pytest.approx(0.125)
    assert row.p == row.adjusted_p == 1.0


def test_holm_corrects_over_all_variants():
    reference = dict.fromkeys(range(6), 0.5)
    better = {key: 0.6 + key / 100 for key in reference}
    rows = paired_differences(reference, {"first": better, "second": better})
    assert [(row.p, row.adjusted_p) for row in rows] == [(pytest.approx(1 / 32), pytest.approx(1 / 16))] * 2
