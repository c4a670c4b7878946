"""Information and entropy of predictions, which need no labels."""

from __future__ import annotations

from torch import Tensor

EPSILON = 1e-8


def entropy(probabilities: Tensor) -> Tensor:
    """Entropy of each row, in nats."""
    return -(probabilities * (probabilities + EPSILON).log()).sum(-1)


def information(probabilities: Tensor) -> Tensor:
    """Mutual information between sample and predicted class: diverse over all, confident on each."""
    return entropy(probabilities.mean(0)) - entropy(probabilities).mean()
