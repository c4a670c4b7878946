"""What the target does by itself: evaluation, and adaptation to its own samples, which needs no communication.

Predictions are made informative: confident on each sample, diverse over all, and optionally true to pseudo-labels and
the same for maps that are warped a little. In a stage after the last round (`adapt.when=last`) the target's own part of
the extractor learns that, with W and C as the federation left them. Within the rounds (`joint`) it is one more term of
the target's loss, for all that it trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fedrf.adaptation.information import entropy, information
from fedrf.adaptation.pseudo_labels import OwnView, pseudo_labels
from fedrf.adaptation.scores import density
from fedrf.config.schema import Config
from fedrf.models.extractors.two_scales import UpperBlocks
from fedrf.models.network import Batch, DomainModel
from fedrf.models.trunk_rows import MEMORY_LIMIT, TrunkRows

ROWS = 2048
Figures = dict[str, float]
Score = Callable[[Tensor], float | None]


class TargetStage:
    """Adaptation at home, one step at a time.

    Attributes
    ----------
    known
        What G says of all samples before it adapts, or the part of it that is fixed where it learns in the rounds; the
        client sets it, and it is let go when it was looked at.
    """

    known: TrunkRows | None = None

    def __init__(self, config: Config) -> None:
        self.settings, self.every, self.seed = config.adapt, config.track.evaluate_every, config.seed
        self.is_last = config.adapt.when == "last"
        self.guesses: Tensor | None = None
        self.guessed = 0  # in which step
        self.own: OwnView | None = None
        self.history: list[Figures] = []

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs; the coordinator's has no figures of this stage."""
        return {"guesses": self.guesses, "guessed": self.guessed, "history": self.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        self.guesses, self.guessed, self.history = state["guesses"], state["guessed"], state["history"]

    def optimizer(self, model: DomainModel) -> torch.optim.Optimizer:
        """Return an optimiser for the only thing that is trained here."""
        return torch.optim.Adam(model.parts()["extractor"], lr=self.settings.lr, fused=True)

    def step(self, model: DomainModel, batch: Batch, trunk: TrunkRows, score: Score, number: int) -> Figures:
        """Take one step of the stage after the rounds; return figures where it is time for some."""
        model.adapter.requires_grad_(True)
        loss = self.loss(model, batch, model.features(batch.inputs), trunk, number)
        model.step(loss, -1)
        if number % self.every:
            return {}
        self.history.append({"step": float(number), "loss": float(loss.detach()), **evaluate(model, trunk, score)})
        return self.history[-1]

    def loss(self, model: DomainModel, batch: Batch, features: Tensor, trunk: TrunkRows, number: int) -> Tensor:
        """Return what is minimised; pseudo-labels are renewed from time to time."""
        logits = model.logits(features)
        probabilities = logits.softmax(1)
        loss = -information(probabilities)
        if self.settings.consistency and isinstance(model.adapter, UpperBlocks) and not model.adapter_is_applied:
            # From seed and step alone: resuming needs no memory.
            varied = model.adapter.augmented(batch.inputs, np.random.RandomState([self.seed, number, 0x3A4F]))
            # Little at first: to agree with oneself keeps mistakes as they are.
            weight = self.settings.consistency * min(1.0, number / self.settings.steps)
            loss = loss + weight * cross_entropy(model(varied), probabilities.detach())
        if not self.settings.pseudo_labels:
            return loss
        if self.guesses is None or number - self.guessed >= self.settings.renew:
            self.guesses, self.guessed = self._guess(model, trunk), number
        return loss + self.settings.pseudo_labels * cross_entropy(logits, self.guesses[batch.rows])

    @torch.no_grad()
    def _guess(self, model: DomainModel, trunk: TrunkRows) -> Tensor:
        """Return pseudo-labels of all samples."""
        if self.settings.views == "all" and self.known is not None:
            self.own, self.known = _own_view(self.known, model), None
        aligned = torch.cat([model.align(model.features(rows.to(model.device))) for rows in trunk.split(ROWS)])
        return pseudo_labels(model.classifier(model.scale * aligned).softmax(1), aligned, self.own)


def _own_view(trunk: TrunkRows, model: DomainModel) -> OwnView | None:
    """Return what these rows tell of all samples, unless that is more than may be in memory."""
    (some,) = trunk.pieces(np.zeros(1, dtype=np.int64), 1)
    if len(trunk) * _pooled(some).nbytes > MEMORY_LIMIT:
        return None
    rows = torch.cat([_pooled(rows.to(model.device)) for rows in trunk.split(ROWS)])
    return OwnView.of(rows, model.num_classes)


def _pooled(rows: Tensor) -> Tensor:
    """Return a vector for each sample: maps are averaged over their places."""
    return rows.float().flatten(2).mean(2) if rows.ndim > 2 else rows


def evaluate(model: DomainModel, trunk: TrunkRows, score: Score) -> Figures:
    """Return the figures of the model's predictions for all samples."""
    return judge(predict(model, trunk), score)


def judge(probabilities: Tensor, score: Score) -> Figures:
    """Return the scores that need no labels, and accuracy if somebody knows it."""
    accuracy = score(probabilities.argmax(1))
    return {
        **({} if accuracy is None else {"accuracy": accuracy}),
        "information": float(information(probabilities)),
        "density": float(density(probabilities)),
        "entropy": float(entropy(probabilities).mean()),
    }


@torch.no_grad()
def predict(model: DomainModel, trunk: TrunkRows) -> Tensor:
    """Return class probabilities of all samples."""
    with model.settled(lambda: trunk.split(ROWS)):
        return torch.cat([model(rows.to(model.device)).softmax(1) for rows in trunk.split(ROWS)])


def vote(model: DomainModel, trunk: TrunkRows, ballots: Sequence[dict[str, Tensor]]) -> Tensor:
    """Return each class's share of the votes, a network's vote being the class that it finds most likely."""
    votes = []
    for ballot in ballots:
        rows = trunk.split(ROWS)
        logits = torch.cat([model.seen_with(ballot, piece.to(model.device)) for piece in rows])
        votes.append(one_hot(logits.argmax(1), logits.shape[1]))
    return torch.stack(votes).to(logits.dtype).mean(0)
