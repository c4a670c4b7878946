"""What the target can learn from its own unlabelled samples: information maximisation and pseudo-labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

EPSILON = 1e-8


def entropy(probabilities: Tensor) -> Tensor:
    """Entropy of each row, in nats."""
    return -(probabilities * (probabilities + EPSILON).log()).sum(-1)


def information(probabilities: Tensor) -> Tensor:
    """Mutual information between sample and predicted class: diverse over all, confident on each."""
    return entropy(probabilities.mean(0)) - entropy(probabilities).mean()


@torch.no_grad()
def pseudo_labels(aligned: Tensor, probabilities: Tensor, refinements: int = 2) -> Tensor:
    """Label each sample by the nearest class centre (cosine), the centres being weighted by the predictions first.

    Each refinement takes the centres of the labels before it; classes without samples keep their centre.
    """
    shares = probabilities
    centres = normalize(shares.T @ aligned)
    for _ in range(refinements):
        labels = (aligned @ centres.T).argmax(1)
        shares = torch.nn.functional.one_hot(labels, probabilities.shape[1]).to(aligned.dtype)
        centres = torch.where(shares.sum(0)[:, None] > 0, normalize(shares.T @ aligned), centres)
    return (aligned @ centres.T).argmax(1)
