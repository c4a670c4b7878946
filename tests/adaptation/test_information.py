"""Entropy and mutual information: hand-computed values and limits."""

from math import log

import pytest
import torch

from fedrf.adaptation.information import entropy, information


def test_entropy_of_one_hot_and_of_uniform_predictions():
    torch.testing.assert_close(entropy(torch.eye(4)), torch.zeros(4), rtol=0, atol=1e-6)
    torch.testing.assert_close(entropy(torch.full((2, 4), 0.25)), torch.full((2,), log(4.0)))


def test_information_is_highest_for_confident_and_diverse_predictions():
    confident_and_diverse = torch.eye(4)
    assert float(information(confident_and_diverse)) == pytest.approx(log(4), abs=1e-5)
    assert float(information(torch.eye(4)[[0, 0, 0]])) == pytest.approx(0, abs=1e-5)  # the same class for all
    assert float(information(torch.full((5, 4), 0.25))) == pytest.approx(0, abs=1e-5)  # uniform


def test_with_shares_it_is_highest_for_confident_predictions_with_these_shares():
    shares = torch.tensor([0.5, 0.25, 0.25])
    confident = torch.eye(3)
    values = {rows: float(information(confident[list(rows)], shares)) for rows in [(0, 0, 1, 2), (0, 1, 2), (0, 0, 0)]}
    assert values[0, 0, 1, 2] == pytest.approx(0, abs=1e-5)  # minus the divergence from the shares
    assert values[0, 1, 2] == pytest.approx(-sum(log(1 / 3 / share) / 3 for share in shares.tolist()), abs=1e-5)
    assert values[0, 0, 0] == pytest.approx(log(0.5), abs=1e-5)


def test_equal_shares_change_the_value_by_a_constant():
    rows = torch.rand(6, 4, generator=torch.Generator().manual_seed(0)).softmax(1)
    difference = information(rows, torch.full((4,), 0.25)) - information(rows)
    assert float(difference) == pytest.approx(-log(4), abs=1e-5)
