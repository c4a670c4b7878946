"""AutoDIAL (Carlucci et al. 2017): normalisation with statistics of both domains, mixed by a share that is learned.

Each domain standardises its aligned features by mean and variance of a mixture: a share α of itself and 1 − α of the
others, with one α from 1/2 to 1 for all. Sources minimise cross-entropy, the target λ · entropy of its predictions.

Sent every round: mean and variance of the batch, 2m numbers, up from all clients; the target's down to each source and
the sources' to the target. Every T rounds: G, W, C and α from all clients, and the averages down. Bytes a round:
``4 * (3*K + 1) * 2*m + 4 * (2*K + 2) * (G + W + C + D) / T``, where D = 1. Asynchronous: yes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedrf.adaptation.information import entropy
from fedrf.config.schema import Config
from fedrf.methods.base import Inbox, Losses, Method, classification_loss
from fedrf.models.network import Batch, DomainModel
from fedrf.models.normalization import mixed_moments

FIRST = 2.0  # α = 0.94: domains begin almost apart


class Mixture(nn.Module):
    """α, kept between 1/2 and 1 by a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.tensor([FIRST]))

    def share(self) -> Tensor:
        """Return α."""
        return 0.5 + 0.5 * self.raw.sigmoid()


def _remember(model: DomainModel, inbox: Inbox) -> None:
    if inbox.peers and model.normalization is not None:
        peers = torch.stack(inbox.peers)
        model.normalization.others.copy_(mixed_moments(peers, peers.new_full((len(peers),), 1 / len(peers))))


def source_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """Cross-entropy, with the target's statistics mixed in."""
    _remember(model, inbox)
    return classification_loss(model, batch, features, inbox, config)


def target_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """λ · entropy, with the sources' statistics mixed in."""
    _remember(model, inbox)
    mean = entropy(model.logits(features).softmax(1)).mean()
    return {"loss": config.align.weight * mean, "entropy_of_batch": mean.detach()}


METHODS = (Method("autodial", source_loss, target_loss, lambda config, peers, width: Mixture(), shares_companion=True),)
