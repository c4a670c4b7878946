"""Information and pseudo-labels, by hand and at their limits."""

from math import log

import pytest
import torch

from fedrf.adaptation import entropy, information, pseudo_labels


def test_entropy_of_certainty_and_of_ignorance():
    torch.testing.assert_close(entropy(torch.eye(4)), torch.zeros(4), rtol=0, atol=1e-6)
    torch.testing.assert_close(entropy(torch.full((2, 4), 0.25)), torch.full((2,), log(4.0)))


def test_information_is_highest_for_confident_and_diverse_predictions():
    confident_and_diverse = torch.eye(4)
    assert float(information(confident_and_diverse)) == pytest.approx(log(4), abs=1e-5)
    assert float(information(torch.eye(4)[[0, 0, 0]])) == pytest.approx(0, abs=1e-5)  # one class for all
    assert float(information(torch.full((5, 4), 0.25))) == pytest.approx(0, abs=1e-5)  # no opinion


def test_pseudo_labels_follow_the_clusters_and_correct_a_wrong_prediction():
    aligned = torch.nn.functional.normalize(torch.tensor([[1.0, 0.1], [1.0, -0.1], [1.0, 0.0], [0.0, 1.0], [0.1, 1.0]]))
    probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.1, 0.9], [0.2, 0.8]])
    assert pseudo_labels(aligned, probabilities).tolist() == [0, 0, 0, 1, 1]


def test_a_class_that_nobody_has_keeps_its_centre():
    aligned = torch.nn.functional.normalize(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)))
    probabilities = torch.cat([torch.ones(6, 1), torch.zeros(6, 1)], dim=1)
    labels = pseudo_labels(aligned, probabilities)
    assert labels.shape == (6,)
    assert not labels.isnan().any()
