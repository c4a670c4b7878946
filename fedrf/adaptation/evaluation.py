"""Keeps labels that a client must not see while it trains: it is shown predictions, and tells their accuracy."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrf.data.partition import Integers
from fedrf.data.samples import Labels


class Evaluator:
    """Scores predictions for the samples of one client, or for some of them; None where nobody knows their labels."""

    def __init__(self, labels: Labels | None, positions: Integers | None = None) -> None:
        self._labels = None if labels is None else torch.from_numpy(labels)
        self._positions = slice(None) if positions is None else torch.from_numpy(positions)

    def __call__(self, predicted: Tensor) -> float | None:
        """Return the share of right predictions."""
        if self._labels is None:
            return None
        right = predicted.cpu() == self._labels
        return float(right[self._positions].double().mean())
