"""f-DANN: DANN (Ganin et al. 2016) between clients, as Peng et al. (2020) compare with.

For each source there is a discriminator between its aligned features and the target's. Both ends train their own from
the same features, so that it need not be sent: a source has one, the target one for each source.

Sent: as f-DAN. Bytes a round: ``4 * (3*K + 1) * B*m + 4 * ((2*K + 2) * (G + W) + (2*K + 1) * C) / T``.
Asynchronous: yes, with features that are as old as their sender's model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedrf.config.schema import Config
from fedrf.methods.adversary import discriminator, growing_strength, pair_loss
from fedrf.methods.base import Inbox, Losses, Method, classification_loss
from fedrf.models.network import Batch, DomainModel


class Discriminators(nn.Module):
    """One for each peer."""

    def __init__(self, config: Config, peers: int, width: int) -> None:
        super().__init__()
        self.discriminators = nn.ModuleList(discriminator(config.model.dim) for _ in range(peers))


def confusion(model: DomainModel, batch: Batch, inbox: Inbox, config: Config) -> Tensor:
    """Mean loss of the discriminators whose peer's message arrived."""
    assert isinstance(model.companion, Discriminators)
    strength, networks = growing_strength(batch.round, config.train.rounds), model.companion.discriminators
    losses = [
        pair_loss(networks[place], inbox.own, peer, not inbox.is_target, strength)
        for place, peer in zip(inbox.places, inbox.peers, strict=True)
    ]
    return torch.stack(losses).mean()


def source_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """Cross-entropy + λ · confusion with the target."""
    losses = classification_loss(model, batch, features, inbox, config)
    if inbox.peers:
        adversarial = confusion(model, batch, inbox, config)
        losses |= {"loss": losses["loss"] + config.align.weight * adversarial, "adversarial": adversarial.detach()}
    return losses


def target_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """λ · confusion with all sources."""
    if not inbox.peers:
        return {}
    adversarial = confusion(model, batch, inbox, config)
    return {"loss": config.align.weight * adversarial, "adversarial": adversarial.detach()}


METHODS = (Method("f-dann", source_loss, target_loss, Discriminators),)
