"""Scores of a source on samples that it holds out of training and of Σℓ."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrf.adaptation.evaluation import PREDICTION_BATCH, Figures
from fedrf.adaptation.scores import deep_embedded_validation, evenly, importance_weights, weighted_accuracy
from fedrf.data.partition import Integers
from fedrf.models.network import DomainModel
from fedrf.models.trunk_rows import TrunkRows
from fedrf.tca.precision import where_float64


class HeldOut:
    """Scores a model on samples that it was not trained with.

    Parameters
    ----------
    training, held_out
        Positions of the samples to train with, and of those held out.
    labels
        Labels of all samples.
    extractor_learns
        Whether the extractor is trained, so that density ratios change with it.

    Attributes
    ----------
    target_mean
        The newest Σℓ of the target; without it there are no scores `importance` and `dev`.
    """

    def __init__(self, training: Integers, held_out: Integers, labels: Tensor, extractor_learns: bool) -> None:
        # Density ratios do not need more training samples than these.
        self.training, self.held_out = training[evenly(len(training))], held_out
        self.extractor_learns = extractor_learns
        self.labels = labels[torch.from_numpy(held_out)]
        self.target_mean: Tensor | None = None
        self._ratios: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def scores(self, model: DomainModel, rows: TrunkRows) -> Figures:
        """Return source validation and, if the target's Σℓ has arrived, the scores that use density ratios."""
        features = _features(model, rows, self.held_out)
        with model.population_statistics(lambda: rows.pieces(self.training, PREDICTION_BATCH)):
            logits = where_float64(model.logits(features))
        labels = self.labels.to(logits.device)
        correct = (logits.argmax(1) == labels).double()
        figures = {"validation": float(correct.mean())}
        if self.target_mean is not None:
            losses = cross_entropy(logits, labels, reduction="none")
            ratios = self._density_ratios(model, rows, features, self.target_mean)
            figures["importance"] = weighted_accuracy(correct, ratios)
            figures["dev"] = float(deep_embedded_validation(losses.double(), ratios))
        return figures

    def _density_ratios(self, model: DomainModel, rows: TrunkRows, features: Tensor, target_mean: Tensor) -> Tensor:
        """Return density ratios; those of before if neither extractor nor target mean have changed."""
        if self._ratios is None or self.extractor_learns or not torch.equal(self._ratios[0], target_mean):
            training = _features(model, rows, self.training)
            weights = importance_weights(training, features, target_mean.to(features.device))
            self._ratios = (target_mean, weights)
        return self._ratios[1]


def _features(model: DomainModel, rows: TrunkRows, positions: Integers) -> Tensor:
    pieces = rows.pieces(positions, PREDICTION_BATCH)
    return torch.cat([model.features(piece.to(model.device)) for piece in pieces])
