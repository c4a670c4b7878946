"""Predictions for all samples of a client, and the figures that they are evaluated by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedrf.adaptation.information import entropy, information
from fedrf.adaptation.scores import density, nuclear_norm
from fedrf.adaptation.selection import compute_score
from fedrf.config.registry import SCORES
from fedrf.data.partition import Integers
from fedrf.data.samples import Labels
from fedrf.models.network import DomainModel
from fedrf.models.parts import outputs_with
from fedrf.models.trunk_rows import TrunkRows

PREDICTION_BATCH = 2048  # samples at a time
Figures = dict[str, float]
Accuracy = Callable[[Tensor], float | None]


class Evaluator:
    """Computes the accuracy of predictions with labels that the client does not see.

    Parameters
    ----------
    labels
        Labels of all samples; None if they are not known.
    positions
        The samples that are scored; default all.
    """

    def __init__(self, labels: Labels | None, positions: Integers | None = None) -> None:
        self._labels = None if labels is None else torch.from_numpy(labels)
        self._positions = slice(None) if positions is None else torch.from_numpy(positions)

    def __call__(self, predicted: Tensor) -> float | None:
        """Return the share of correct predictions; None without labels."""
        if self._labels is None:
            return None
        correct = predicted.cpu() == self._labels
        return float(correct[self._positions].double().mean())


@torch.no_grad()
def predict(model: DomainModel, rows: TrunkRows) -> Tensor:
    """Return class probabilities of all samples."""
    with model.population_statistics(lambda: rows.split(PREDICTION_BATCH)):
        return torch.cat([model(piece.to(model.device)).softmax(1) for piece in rows.split(PREDICTION_BATCH)])


def majority_vote(model: DomainModel, rows: TrunkRows, source_models: Iterable[Mapping[str, Tensor]]) -> Tensor:
    """Return the share of source models that predict each class, n × classes."""
    votes = []
    for parts in source_models:
        pieces = rows.split(PREDICTION_BATCH)
        logits = torch.cat([outputs_with(model, parts, piece.to(model.device)) for piece in pieces])
        votes.append(one_hot(logits.argmax(1), logits.shape[1]))
    return torch.stack(votes).to(logits.dtype).mean(0)


def figures_of(probabilities: Tensor, accuracy: Accuracy, select: str) -> Figures:
    """Return the scores that need no labels, that of `track.select` included, and accuracy if labels are known."""
    correct, score = accuracy(probabilities.argmax(1)), SCORES.find(select)
    return {
        **({} if correct is None else {"accuracy": correct}),
        "information": float(information(probabilities)),
        "density": float(density(probabilities)),
        "entropy": float(entropy(probabilities).mean()),
        "bnm": nuclear_norm(probabilities),
        **({} if score.compute is None else {select: compute_score(score.compute, probabilities)}),
    }
