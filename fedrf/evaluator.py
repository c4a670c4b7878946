"""Keeps labels that a client must not see while it trains: it is shown predictions, and tells their accuracy."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrf.data.samples import Labels


class Evaluator:
    """Scores predictions for the samples of one client; None where nobody knows their labels."""

    def __init__(self, labels: Labels | None) -> None:
        self._labels = None if labels is None else torch.from_numpy(labels)

    def __call__(self, predicted: Tensor) -> float | None:
        """Return the share of right predictions."""
        return None if self._labels is None else float((predicted.cpu() == self._labels).double().mean())
