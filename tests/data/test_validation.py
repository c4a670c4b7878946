"""Held-out samples: a share of each class, drawn with the seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.data.validation import hold_out

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=60).map(np.array)


@settings(deadline=None)
@given(LABELS, st.floats(0, 1, exclude_max=True), st.integers(0, 99))
def test_each_class_has_its_share_and_both_sides_are_disjoint(labels, share, seed):
    training, held_out = hold_out(labels, share, np.random.RandomState(seed))
    assert sorted([*training, *held_out]) == list(range(len(labels)))
    if len(held_out):
        assert min(len(training), len(held_out)) >= 2
        for label in range(5):
            assert abs((labels[held_out] == label).sum() - share * (labels == label).sum()) <= 1
    else:
        assert len(labels) * share < 3 or len(labels) * (1 - share) < 3


def test_the_seed_determines_the_samples():
    labels = np.repeat([0, 1, 2], 40)
    first, again, other = (hold_out(labels, 0.25, np.random.RandomState(seed))[1] for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()
    assert np.bincount(labels[first]).tolist() == [10, 10, 10]


@pytest.mark.parametrize(("count", "share"), [(3, 0.5), (10, 0.1), (10, 0.95)])
def test_nothing_is_held_out_of_too_few_samples(count, share):
    training, held_out = hold_out(np.zeros(count, dtype=int), share, np.random.RandomState(0))
    assert (len(training), len(held_out)) == (count, 0)
