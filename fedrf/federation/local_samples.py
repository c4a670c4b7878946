"""The samples of one client: cached outputs of the frozen part of its extractor, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fedrf.adaptation.evaluation import Accuracy, Figures, figures_of, predict
from fedrf.adaptation.held_out import HeldOut
from fedrf.adaptation.model_scores import MODEL_SCORES, model_scores
from fedrf.adaptation.scores import evenly
from fedrf.data.draws import Draws
from fedrf.data.partition import Integers
from fedrf.data.samples import Labels
from fedrf.models.network import Batch, DomainModel
from fedrf.models.trunk_rows import TrunkRows

PIECE = 1024  # samples at a time, where all of them are computed


class LocalSamples:
    """The samples of one client, in the form that its module takes.

    Parameters
    ----------
    rows
        All samples.
    labels
        Their labels; None at the target.
    training
        Positions of the samples to train with.
    position
        The position of the client among all clients.
    draws
        Chooses the samples of a batch.
    accuracy
        Computes the accuracy of predictions for all samples.
    select
        The value of `track.select`.
    trunk_outputs
        Returns the samples as they leave the trunk, below the adapter.
    held_out
        Scores on samples that a source holds out.
    target_rows
        Samples of the target, for references that pool data.
    """

    def __init__(
        self,
        rows: TrunkRows,
        labels: Labels | None,
        training: Integers,
        position: int,
        draws: Draws,
        accuracy: Accuracy,
        select: str,
        trunk_outputs: Callable[[], TrunkRows],
        held_out: HeldOut | None = None,
        target_rows: TrunkRows | None = None,
    ) -> None:
        self.rows, self.training, self.accuracy, self.select = rows, training, accuracy, select
        self.trunk_outputs, self.held_out, self.target_rows = trunk_outputs, held_out, target_rows
        self.labels = None if labels is None else torch.from_numpy(labels)
        self._position, self.draws = position, draws

    def batch(self, number: int, size: int) -> Batch:
        """Return the samples of one round; each epoch has a new order."""
        count = len(self.training)
        size = min(size, count)
        epoch, index = divmod(number - 1, max(1, count // size))
        order = self.draws.random(self._position, epoch, 0xDA7A).permutation(count)
        rows = torch.from_numpy(self.training[order[index * size : (index + 1) * size]])
        labels = None if self.labels is None else self.labels[rows]
        return Batch(number, rows, self.rows[rows], labels, self._target_batch(number, size))

    def _target_batch(self, number: int, size: int) -> Tensor | None:
        if self.target_rows is None:
            return None
        random = self.draws.random(number, 0xF0E1)
        return self.target_rows[random.permutation(len(self.target_rows))[:size]]

    def training_pieces(self) -> Iterator[Tensor]:
        """Yield all samples to train with, in pieces that bound the memory."""
        return self.rows.pieces(self.training, PIECE)

    def some_positions(self) -> Integers:
        """Return the positions of at most `PIECE` samples to train with: evenly spaced, or drawn from the secret."""
        count = len(self.training)
        is_private = self.draws.secret is not None
        chosen = self.draws.random(0x517E).permutation(count)[:PIECE] if is_private else evenly(count, PIECE)
        positions: Integers = self.training[chosen]
        return positions

    def evaluate(self, model: DomainModel, is_target: bool) -> Figures:
        """Return the figures of the target's predictions, or of a source's for samples that it holds out."""
        if not is_target:
            return self.held_out_scores(model)
        probabilities = predict(model, self.rows)
        figures = figures_of(probabilities, self.accuracy, self.select)
        return figures | model_scores(model, self.rows, probabilities, {self.select} & MODEL_SCORES.keys())

    def held_out_scores(self, model: DomainModel) -> Figures:
        """Return the scores on samples that are held out, if there are any."""
        return self.held_out.scores(model, self.rows) if self.held_out else {}
