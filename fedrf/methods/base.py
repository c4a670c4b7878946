"""What a method is: a preset (`fedrf.presets`) and two losses, one for sources and one for the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrf.alignment import mmd_loss
from fedrf.config import Config
from fedrf.model import Batch, DomainModel


@dataclass(frozen=True)
class Inbox:
    """What a loss may use besides the client's own batch: its own Σℓ, and the peers' as constants."""

    own: Tensor
    peers: tuple[Tensor, ...] = ()


Losses = dict[str, Tensor]
Loss = Callable[[DomainModel, Batch, Tensor, Inbox, Config], Losses]


@dataclass(frozen=True)
class Method:
    """A way to train: each loss returns named terms, of which `loss` is minimised; without it nothing is trained."""

    name: str
    source_loss: Loss
    target_loss: Loss


def classification_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """L_C alone: cross-entropy on the client's labels."""
    assert batch.labels is not None
    loss = cross_entropy(model.logits(features), batch.labels, label_smoothing=config.train.label_smoothing)
    return {"loss": loss, "classification": loss.detach()}


def mean_mmd(model: DomainModel, inbox: Inbox) -> Tensor:
    """L_MMD as a mean over the pairs whose message arrived; 0 if none did."""
    if not inbox.peers:
        return torch.zeros((), device=inbox.own.device)
    return torch.stack([mmd_loss(inbox.own, peer, model.aligner) for peer in inbox.peers]).mean()


def no_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """Nothing to train here."""
    return {}
