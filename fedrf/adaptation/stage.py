"""Adaptation of the target to its own samples, without communication.

The loss is minus the mutual information between samples and predictions (confident on each sample, diverse over all),
optionally with cross-entropy on pseudo-labels and with equal predictions for warped feature maps. After the last round
(`adapt.when=last`) the target's own part of the extractor is trained with it; W and C stay as they are. Within the
rounds (`joint`) it is one more term of the target's loss, for all parts that the target trains.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrf.adaptation.evaluation import PREDICTION_BATCH, Figures
from fedrf.adaptation.information import information
from fedrf.adaptation.pseudo_labels import OwnView, pseudo_labels
from fedrf.config.schema import Config
from fedrf.models.extractors.two_scales import UpperBlocks
from fedrf.models.network import Batch, DomainModel
from fedrf.models.parts import parameters_of
from fedrf.models.trunk_rows import MEMORY_LIMIT, TrunkRows


class TargetStage:
    """Adaptation, one step at a time.

    Attributes
    ----------
    is_last
        Whether adaptation comes after the rounds, and not within them.
    initial_rows
        Samples as the extractor maps them before adaptation, for pseudo-labels; released after the first use.
    history
        Figures of the steps so far.
    """

    def __init__(self, config: Config) -> None:
        self.settings, self.seed = config.adapt, config.seed
        self.is_last = config.adapt.when == "last"
        self.initial_rows: TrunkRows | None = None
        self.history: list[Figures] = []
        self._labels: Tensor | None = None
        self._labels_step = 0  # when they were computed
        self._own_view: OwnView | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; the coordinator's does not have the figures of this stage."""
        return {"labels": self._labels, "labels_step": self._labels_step, "history": self.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        self._labels, self._labels_step, self.history = state["labels"], state["labels_step"], state["history"]

    def optimizer(self, model: DomainModel) -> torch.optim.Optimizer:
        """Return an optimiser for the extractor, the only part that is trained after the rounds."""
        return torch.optim.Adam(parameters_of(model, "extractor"), lr=self.settings.lr, fused=True)

    def loss(self, model: DomainModel, batch: Batch, features: Tensor, rows: TrunkRows, number: int) -> Tensor:
        """Return the loss of step `number`; pseudo-labels are renewed every `adapt.renew` steps."""
        logits = model.logits(features)
        probabilities = logits.softmax(1)
        loss = -information(probabilities)
        if (warped := self._warped(model, batch, number)) is not None:
            # The weight grows: agreement of early predictions would keep their mistakes.
            weight = self.settings.consistency * min(1.0, number / self.settings.steps)
            loss = loss + weight * cross_entropy(model(warped), probabilities.detach())
        if not self.settings.pseudo_labels:
            return loss
        if self._labels is None or number - self._labels_step >= self.settings.renew:
            self._labels, self._labels_step = self._pseudo_labels(model, rows), number
        return loss + self.settings.pseudo_labels * cross_entropy(logits, self._labels[batch.rows])

    def _warped(self, model: DomainModel, batch: Batch, number: int) -> Tensor | None:
        """Return warped feature maps, if the extractor has such maps and consistency has a weight."""
        extractor = model.extractor
        is_cached = getattr(extractor, "adapter_is_applied", False)
        if not self.settings.consistency or not isinstance(extractor.adapter, UpperBlocks) or is_cached:
            return None
        # The random numbers depend on seed and step alone, so resuming needs no state.
        return extractor.adapter.augmented(batch.inputs, np.random.RandomState([self.seed, number, 0x3A4F]))

    @torch.no_grad()
    def _pseudo_labels(self, model: DomainModel, rows: TrunkRows) -> Tensor:
        """Return pseudo-labels of all samples."""
        if self.settings.views == "all" and self.initial_rows is not None:
            self._own_view, self.initial_rows = _own_view(self.initial_rows, model), None
        pieces = (piece.to(model.device) for piece in rows.split(PREDICTION_BATCH))
        aligned = torch.cat([model.align(model.features(piece)) for piece in pieces])
        return pseudo_labels(model.classifier(model.scale * aligned).softmax(1), aligned, self._own_view)


def _own_view(rows: TrunkRows, model: DomainModel) -> OwnView | None:
    """Return the extractor's view of all samples, unless it needs too much memory."""
    (first,) = rows.pieces(np.zeros(1, dtype=np.int64), 1)
    if len(rows) * _pooled(first).nbytes > MEMORY_LIMIT:
        return None
    vectors = torch.cat([_pooled(piece.to(model.device)) for piece in rows.split(PREDICTION_BATCH)])
    return OwnView.of(vectors, model.num_classes)


def _pooled(rows: Tensor) -> Tensor:
    """Return a vector for each sample: feature maps are averaged over their positions."""
    return rows.float().flatten(2).mean(2) if rows.ndim > 2 else rows
