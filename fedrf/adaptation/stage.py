"""Adaptation of the target to its own samples, without communication.

The loss is minus the mutual information between samples and predictions (confident on each sample, diverse over all),
optionally with cross-entropy on pseudo-labels and with equal predictions for warped feature maps. After the last round
(`adapt.when=last`) the target's own part of the extractor is trained with it; W and C stay as they are. Within the
rounds (`joint`) it is one more term of the target's loss, for all parts that the target trains.

If predictions before the stage have unequal classes, the stage aims at the class shares of the pseudo-labels instead of
equal ones. If moreover samples are few, or their predicted classes are not those of their neighbours, pseudo-labels are
not reliable, and the predictions stay as they are (`reason_to_decline`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrf.adaptation.class_shares import estimated_shares, imbalance
from fedrf.adaptation.evaluation import PREDICTION_BATCH, Figures
from fedrf.adaptation.information import information
from fedrf.adaptation.pseudo_labels import OwnView, pseudo_labels, support
from fedrf.config.schema import Config
from fedrf.data.draws import Draws
from fedrf.models.extractors.two_scales import UpperBlocks
from fedrf.models.network import Batch, DomainModel
from fedrf.models.parts import parameters_of
from fedrf.models.trunk_rows import MEMORY_LIMIT, TrunkRows

# For adaptation where classes are unequal:
MIN_SUPPORT = 0.62  # share of samples that are predicted as most of their neighbours
MIN_SAMPLES = 7  # for each class, on average


class TargetStage:
    """Adaptation, one step at a time.

    Parameters
    ----------
    config
        The configuration.
    draws
        Chooses how feature maps are warped.

    Attributes
    ----------
    is_last
        Whether adaptation comes after the rounds, and not within them.
    initial_rows
        Samples as the extractor maps them before adaptation, for pseudo-labels; released after the first use.
    declined
        Why predictions stay as they are; empty if the target adapts.
    history
        Figures of the steps so far.
    """

    def __init__(self, config: Config, draws: Draws) -> None:
        self.settings, self.draws = config.adapt, draws
        self.is_last = config.adapt.when == "last"
        self.initial_rows: TrunkRows | None = None
        self.declined = ""
        self.history: list[Figures] = []
        self._labels: Tensor | None = None
        self._labels_step = 0  # when they were computed
        self._imbalance = 0.0  # of the predictions before the first step
        self._shares: Tensor | None = None  # of classes, if they are unequal
        self._own_view: OwnView | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; the coordinator's does not have the figures of this stage."""
        return {
            "labels": self._labels,
            "labels_step": self._labels_step,
            "imbalance": self._imbalance,
            "shares": self._shares,
            "declined": self.declined,
            "history": self.history,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        self._labels, self._labels_step, self.history = state["labels"], state["labels_step"], state["history"]
        self._imbalance, self._shares, self.declined = state["imbalance"], state["shares"], state["declined"]

    def optimizer(self, model: DomainModel) -> torch.optim.Optimizer:
        """Return an optimiser for the extractor, the only part that is trained after the rounds."""
        return torch.optim.Adam(parameters_of(model, "extractor"), lr=self.settings.lr, fused=True)

    def prepare(self, model: DomainModel, rows: TrunkRows, number: int) -> None:
        """Compute what step `number` needs of all samples; pseudo-labels are renewed every `adapt.renew` steps."""
        if self._needs_labels(number):
            self._renew_labels(model, rows, number)

    def loss(self, model: DomainModel, batch: Batch, features: Tensor, number: int) -> Tensor:
        """Return the loss of step `number`."""
        logits = model.logits(features)
        probabilities = logits.softmax(1)
        loss = -information(probabilities, None if self._shares is None else self._shares.to(probabilities))
        if (warped := self._warped(model, batch, number)) is not None:
            # The weight grows: agreement of early predictions would keep their mistakes.
            weight = self.settings.consistency * min(1.0, number / self.settings.steps)
            loss = loss + weight * cross_entropy(model(warped), probabilities.detach())
        if not self.settings.pseudo_labels:
            return loss
        assert self._labels is not None
        labels = self._labels[batch.rows.to(self._labels.device)].to(logits.device)
        return loss + self.settings.pseudo_labels * cross_entropy(logits, labels)

    def _needs_labels(self, number: int) -> bool:
        """Tell whether labels are due: as pseudo-labels, or once for the shares of the classes."""
        if not self.settings.pseudo_labels:
            return self.is_last and self.settings.shares == "estimated" and self._labels is None
        return self._labels is None or number - self._labels_step >= self.settings.renew

    def _warped(self, model: DomainModel, batch: Batch, number: int) -> Tensor | None:
        """Return warped feature maps, if the extractor has such maps and consistency has a weight."""
        extractor = model.extractor
        is_cached = getattr(extractor, "adapter_is_applied", False)
        if not self.settings.consistency or not isinstance(extractor.adapter, UpperBlocks) or is_cached:
            return None
        return extractor.adapter.augmented(batch.inputs, self.draws.random(number, 0x3A4F))

    @torch.no_grad()
    def _renew_labels(self, model: DomainModel, rows: TrunkRows, number: int) -> None:
        """Compute labels of all samples and, after the rounds, the shares of the classes."""
        pieces = (piece.to(model.device) for piece in rows.split(PREDICTION_BATCH))
        aligned = torch.cat([model.align(model.features(piece)) for piece in pieces])
        probabilities = model.classifier(model.scale * aligned).softmax(1)
        labels, classes, view = probabilities.argmax(1), model.num_classes, self._view(model)
        # In the rounds the first predictions are those of an untrained network.
        if self._labels is None and self.is_last and self.settings.shares == "estimated":
            self._imbalance = imbalance(labels, classes)
            self.declined = reason_to_decline(labels, classes, view) if self._imbalance else ""
        if self.settings.pseudo_labels:
            labels = pseudo_labels(probabilities, aligned, view, self._imbalance)
        self._labels, self._labels_step = labels, number
        self._shares = estimated_shares(labels, classes, self._imbalance)

    def _view(self, model: DomainModel) -> OwnView | None:
        """Return the view of the fixed part of the extractor, if it is used."""
        if self.settings.views == "all" and self.initial_rows is not None:
            self._own_view, self.initial_rows = _own_view(self.initial_rows, model), None
        return self._own_view


def reason_to_decline(predicted: Tensor, num_classes: int, view: OwnView | None) -> str:
    """Return why a target with unequal classes should not adapt; empty if there is no such reason."""
    if len(predicted) < MIN_SAMPLES * num_classes:
        return f"predicted classes are unequal, and {len(predicted)} samples of {num_classes} classes are too few"
    share = 1.0 if view is None else support(predicted, view, num_classes)
    if share < MIN_SUPPORT:
        return (
            f"predicted classes are unequal, and only {share:.0%} of samples are predicted as most of their neighbours"
        )
    return ""


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
