"""Entropy and mutual information of predictions; neither needs labels."""

from __future__ import annotations

from torch import Tensor

EPSILON = 1e-8


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy of each row, in nats."""
    return -(probabilities * (probabilities + EPSILON).log()).sum(-1)


def information(probabilities: Tensor) -> Tensor:
    """Return the mutual information between samples and predicted classes.

    It is high if predictions are confident for each sample and diverse over all samples.
    """
    return entropy(probabilities.mean(0)) - entropy(probabilities).mean()
