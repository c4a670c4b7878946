"""Entropy and mutual information of predictions; neither needs labels."""

from __future__ import annotations

from torch import Tensor

EPSILON = 1e-8


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy of each row, in nats."""
    return -(probabilities * (probabilities + EPSILON).log()).sum(-1)


def information(probabilities: Tensor, shares: Tensor | None = None) -> Tensor:
    """Return the mutual information between samples and predicted classes.

    It is high if predictions are confident for each sample and diverse over all samples. With `shares`, the classes
    should have these shares over all samples instead of equal ones.
    """
    mean = probabilities.mean(0)
    value = entropy(mean) - entropy(probabilities).mean()
    return value if shares is None else value + mean @ shares.log()
