"""Class shares of the target, estimated without labels.

Adaptation asks for diverse predictions, and pseudo-labels come from class centres: both assume classes of similar size.
Where predictions before adaptation say that classes are unequal, that assumption does harm, and estimated shares take
its place. The estimates are the counts of labels. Shares that explain the target's Σℓ by those of the sources' classes
are worse, because the difference between the domains is taken for one between their shares.
"""

from __future__ import annotations

import torch
from torch import Tensor

EQUAL_DISTANCE = 0.15  # from equal shares, up to which classes count as equal
UNEQUAL_DISTANCE = 0.25  # from which on they count as unequal
UNIFORM_PART = 0.1  # of estimated shares, so that no class dies out


def imbalance(labels: Tensor, num_classes: int) -> float:
    """Return 0 if the classes of some labels have similar shares, 1 if their shares are clearly unequal.

    It grows linearly with the total variation distance between the shares and equal ones, from 0.15 to 0.25.
    """
    distance = float((_shares(labels, num_classes) - 1 / num_classes).abs().sum()) / 2
    return min(1.0, max(0.0, (distance - EQUAL_DISTANCE) / (UNEQUAL_DISTANCE - EQUAL_DISTANCE)))


def estimated_shares(labels: Tensor, num_classes: int, imbalance: float) -> Tensor | None:
    """Return shares to aim at: the more `imbalance`, the closer to those of the labels; None for equal shares."""
    if not imbalance:
        return None
    weight = (1 - UNIFORM_PART) * imbalance
    return weight * _shares(labels, num_classes) + (1 - weight) / num_classes


def _shares(labels: Tensor, num_classes: int) -> Tensor:
    return torch.bincount(labels, minlength=num_classes).float() / len(labels)
