"""f-DANN: DANN (Ganin et al. 2016) between clients, a baseline of Peng et al. (2020).

There is a discriminator between the aligned features of each source and those of the target. Both clients train their
own copy from the same features, so it is not sent: a source has one, the target one for each source.

Sent: as f-DAN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrf.methods.adversary import discriminator, growing_strength, pair_loss
from fedrf.methods.averaging import NETWORK_AND_MESSAGES
from fedrf.methods.base import PLAIN_STEPS, FeatureMethod, Inbox, Losses, classification_loss
from fedrf.methods.f_dan import BYTES
from fedrf.methods.lazy_torch import nn, torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedrf.config.schema import Config
    from fedrf.models.network import Batch, DomainModel


class FDANN(FeatureMethod):
    """A discriminator for each pair of a source and the target."""

    name = "f-dann"
    summary = "a domain discriminator for each source, on aligned features"
    settings = NETWORK_AND_MESSAGES
    target_trains = ("aligner", "extractor")
    target_steps = PLAIN_STEPS
    bytes_per_round = BYTES

    def auxiliary_network(self, config: Config, num_peers: int, width: int) -> nn.ModuleDict:
        """Return one discriminator for each peer."""
        discriminators = nn.ModuleList(discriminator(config.model.dim) for _ in range(num_peers))
        return nn.ModuleDict({"discriminators": discriminators})

    def source_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return cross-entropy + λ · loss of the discriminator, whose gradient is reversed for the features."""
        losses = classification_loss(model, batch, features, config)
        if inbox.peers:
            adversarial = discriminator_loss(model, batch, inbox, config)
            losses |= {"loss": losses["loss"] + config.align.weight * adversarial, "adversarial": adversarial.detach()}
        return losses

    def target_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return λ · loss of the discriminators of all sources."""
        if not inbox.peers:
            return {}
        adversarial = discriminator_loss(model, batch, inbox, config)
        return {"loss": config.align.weight * adversarial, "adversarial": adversarial.detach()}


def discriminator_loss(model: DomainModel, batch: Batch, inbox: Inbox, config: Config) -> Tensor:
    """Return the mean loss of the discriminators whose peer's message arrived."""
    assert isinstance(model.auxiliary, nn.ModuleDict)
    networks, strength = model.auxiliary["discriminators"], growing_strength(batch.round, config.train.rounds)
    assert isinstance(networks, nn.ModuleList)
    losses = [
        pair_loss(networks[position], inbox.own, peer, not inbox.is_target, strength)
        for position, peer in zip(inbox.positions, inbox.peers, strict=True)
    ]
    return torch.stack(losses).mean()
