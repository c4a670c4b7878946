"""FADE (Hong et al. 2021): adversarial adaptation in which neither samples nor their features leave a client.

All clients share one discriminator. A client trains it with its own domain alone, which would teach it to predict one
domain for everything. Averaging prevents that; the target counts as much as all sources together. `fade-dann` feeds it
aligned features, `fade-cdan` features times predicted class probabilities (Long et al. 2018). The loss is squared: a
discriminator that recognises a client's domain already learns less from that client.

Sent every T rounds: G, W and the discriminator from all clients, C from the sources, and the averages down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrf.methods.adversary import conditioned, domain_discriminator, domain_loss, growing_strength
from fedrf.methods.averaging import NETWORK
from fedrf.methods.base import PLAIN_STEPS, Inbox, Losses, Method, classification_loss

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedrf.config.schema import Config
    from fedrf.models.network import Batch, DomainModel


class FADE(Method):
    """One discriminator for all clients, on aligned features."""

    name = "fade-dann"
    summary = "one shared domain discriminator; features stay local"
    settings = NETWORK
    target_trains = ("aligner", "extractor")
    target_steps = PLAIN_STEPS
    shares_auxiliary = True
    balances_auxiliary = True  # a discriminator must see both sides equally
    bytes_per_round = "4 * ((2*K + 2) * (G + W + D) + (2*K + 1) * C) / T"
    is_conditional = False

    def auxiliary_network(self, config: Config, num_peers: int, width: int) -> nn.Module:
        """Return the discriminator."""
        return domain_discriminator(config, self.is_conditional)

    def source_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return cross-entropy + λ · loss of the discriminator."""
        losses = classification_loss(model, batch, features, config)
        adversarial = self._discriminator_loss(model, batch, features, True, config.train.rounds)
        loss = losses["loss"] + config.align.weight * adversarial
        return losses | {"loss": loss, "adversarial": adversarial.detach()}

    def target_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return λ · loss of the discriminator."""
        adversarial = self._discriminator_loss(model, batch, features, False, config.train.rounds)
        return {"loss": config.align.weight * adversarial, "adversarial": adversarial.detach()}

    def _discriminator_loss(
        self, model: DomainModel, batch: Batch, features: Tensor, is_source: bool, rounds: int
    ) -> Tensor:
        """Return half the squared cross-entropy on the client's own domain."""
        aligned = model.align(features)
        rows = conditioned(model, aligned) if self.is_conditional else aligned
        return domain_loss(model.auxiliary, rows, is_source, growing_strength(batch.round, rounds)).square() / 2


class ConditionalFADE(FADE):
    """One discriminator for all clients, on features times class probabilities."""

    name = "fade-cdan"
    summary = "fade-dann with features conditioned on predicted classes"
    is_conditional = True
