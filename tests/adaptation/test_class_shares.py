"""How unequal classes are, and the shares that adaptation aims at."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrf.adaptation.class_shares import estimated_shares, imbalance


def labels_with(counts):
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([25, 25, 25, 25], 0.0), ([40, 25, 25, 10], 0.0), ([45, 25, 20, 10], 0.5), ([60, 20, 10, 10], 1.0), ([9, 0], 1.0)],
)
def test_imbalance_grows_with_the_distance_from_equal_shares(counts, expected):
    """Total variation distances 0, 0.15, 0.2, 0.35 and 0.5."""
    assert imbalance(labels_with(counts), len(counts)) == pytest.approx(expected, abs=1e-6)


def test_equal_classes_have_no_shares_to_aim_at():
    assert estimated_shares(labels_with([3, 1]), 2, 0.0) is None


def test_shares_are_those_of_the_labels_and_a_uniform_part():
    torch.testing.assert_close(estimated_shares(labels_with([8, 2]), 2, 1.0), torch.tensor([0.77, 0.23]))
    torch.testing.assert_close(estimated_shares(labels_with([8, 2]), 2, 0.5), torch.tensor([0.635, 0.365]))


@given(counts=st.lists(st.integers(0, 50), min_size=2, max_size=8).filter(any), amount=st.floats(0.01, 1))
def test_shares_are_positive_and_add_up_to_1(counts, amount):
    shares = estimated_shares(labels_with(counts), len(counts), amount)
    assert float(shares.sum()) == pytest.approx(1, abs=1e-5)
    assert (shares >= 0.1 / len(counts) - 1e-6).all()
