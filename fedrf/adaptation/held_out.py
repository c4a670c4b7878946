"""What a source scores with: samples that it holds out of training and of Σℓ."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrf.adaptation.scores import deep_embedded_validation, evenly, importance_weights
from fedrf.adaptation.stage import ROWS, Figures
from fedrf.data.partition import Integers
from fedrf.models.network import DomainModel
from fedrf.models.trunk_rows import TrunkRows


class HeldOut:
    """Scores a model on samples that it was not trained with.

    Parameters
    ----------
    training, rows
        Positions of the samples to train with, and of those held out.
    labels
        Of all samples.
    moves
        Whether the extractor learns, and density ratios with it.

    Attributes
    ----------
    target_mean
        The newest Σℓ of the target that came here; before the first there is no `dev`.
    """

    def __init__(self, training: Integers, rows: Integers, labels: Tensor, moves: bool) -> None:
        # Density ratios need no more samples to train with than these.
        self.training, self.rows, self.moves = training[evenly(len(training))], rows, moves
        self.labels = labels[torch.from_numpy(rows)]
        self.target_mean: Tensor | None = None
        self._weights: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def scores(self, model: DomainModel, trunk: TrunkRows) -> Figures:
        """Return source validation and, if the target's Σℓ has come, deep embedded validation."""
        features = _features(model, trunk, self.rows)
        with model.settled(lambda: trunk.pieces(self.training, ROWS)):
            logits = model.logits(features).cpu()
        figures = {"validation": float((logits.argmax(1) == self.labels).double().mean())}
        if self.target_mean is not None:
            losses = cross_entropy(logits, self.labels, reduction="none")
            weights = self._ratios(model, trunk, features, self.target_mean)
            figures["dev"] = float(deep_embedded_validation(losses.double(), weights))
        return figures

    def _ratios(self, model: DomainModel, trunk: TrunkRows, features: Tensor, target_mean: Tensor) -> Tensor:
        """Return density ratios, those of before if nothing has moved since."""
        if self._weights is None or self.moves or not torch.equal(self._weights[0], target_mean):
            training = _features(model, trunk, self.training).cpu()
            self._weights = (target_mean, importance_weights(training, features.cpu(), target_mean))
        return self._weights[1]


def _features(model: DomainModel, trunk: TrunkRows, rows: Integers) -> Tensor:
    return torch.cat([model.features(piece.to(model.device)) for piece in trunk.pieces(rows, ROWS)])
