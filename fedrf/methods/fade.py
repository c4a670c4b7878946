"""FADE (Hong et al. 2021): adversarial adaptation without a sample, or a feature of one, that leaves its client.

All clients share one discriminator. A client trains it with its own domain alone, which by itself would teach it to say
the same of everything; averaging it, with the target counting as much as all sources, does the rest. `fade-dann` shows
it aligned features, `fade-cdan` features times predicted class probabilities (Long et al. 2018). The loss is squared:
a discriminator that is sure of a client's domain already learns less from that client, and the others catch up.

Sent every T rounds: G, W and the discriminator from all clients, C from the sources, and the averages down. Bytes a
round: ``4 * ((2*K + 2) * (G + W + D) + (2*K + 1) * C) / T``. Asynchronous: yes.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from fedrf.config.schema import Config
from fedrf.methods.adversary import conditioned, domain_discriminator, domain_loss, growing_strength
from fedrf.methods.base import Inbox, Losses, Method, classification_loss
from fedrf.models.network import Batch, DomainModel


def confusion(
    conditional: bool, model: DomainModel, batch: Batch, features: Tensor, is_source: bool, rounds: int
) -> Tensor:
    """How badly the discriminator recognises the client's own domain: half the square of the cross-entropy."""
    aligned = model.align(features)
    rows = conditioned(model, aligned) if conditional else aligned
    return domain_loss(model.companion, rows, is_source, growing_strength(batch.round, rounds)).square() / 2


def source_loss(
    conditional: bool, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config
) -> Losses:
    """Cross-entropy + λ · confusion."""
    losses = classification_loss(model, batch, features, inbox, config)
    adversarial = confusion(conditional, model, batch, features, True, config.train.rounds)
    return losses | {"loss": losses["loss"] + config.align.weight * adversarial, "adversarial": adversarial.detach()}


def target_loss(
    conditional: bool, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config
) -> Losses:
    """λ · confusion."""
    adversarial = confusion(conditional, model, batch, features, False, config.train.rounds)
    return {"loss": config.align.weight * adversarial, "adversarial": adversarial.detach()}


METHODS = tuple(
    Method(
        name,
        partial(source_loss, conditional),
        partial(target_loss, conditional),
        partial(domain_discriminator, conditional),
        shares_companion=True,
    )
    for name, conditional in (("fade-dann", False), ("fade-cdan", True))
)
