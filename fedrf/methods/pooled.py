"""References that are not federated: all sources at one place, which may have the target's samples too.

`pooled` trains on all sources together, `pooled-dann` and `pooled-cdan` add a discriminator between sources and target,
as Ganin et al. (2016) and Long et al. (2018) do. `target-oracle` trains with the labels of half of the target's samples
and is scored on the other half: an oracle, which no method without these labels can be expected to reach.

Sent: all samples once, as they lie (`samples` in the ledger: this grows with n), and every T rounds G, W and C up, down
to the target, and back, since an average of one is an average too. Bytes a round: ``4 * 3 * (G + W + C) / T``.
Asynchronous: there is nobody to wait for.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from fedrf.config.schema import Config
from fedrf.methods.adversary import conditioned, domain_discriminator, growing_strength, pair_loss
from fedrf.methods.base import Inbox, Losses, Method, classification_loss, no_loss
from fedrf.models.network import Batch, DomainModel


def adversarial_loss(
    conditional: bool, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config
) -> Losses:
    """Cross-entropy + λ · confusion of both domains, through one network."""
    losses, rows, strangers = (
        classification_loss(model, batch, features, inbox, config),
        model.align(features),
        inbox.peers[0],
    )
    if conditional:
        rows, strangers = conditioned(model, rows), conditioned(model, strangers)
    confusion = pair_loss(model.companion, rows, strangers, True, growing_strength(batch.round, config.train.rounds))
    return losses | {"loss": losses["loss"] + config.align.weight * confusion, "adversarial": confusion.detach()}


METHODS = (
    Method("pooled", classification_loss, no_loss),
    Method("pooled-dann", partial(adversarial_loss, False), no_loss, partial(domain_discriminator, False)),
    Method("pooled-cdan", partial(adversarial_loss, True), no_loss, partial(domain_discriminator, True)),
    Method("target-oracle", classification_loss, no_loss),
)
