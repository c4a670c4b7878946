"""AutoDIAL (Carlucci et al. 2017): normalisation with statistics of both domains, mixed by a learned share.

Each domain standardises its aligned features by mean and variance of a mixture: a share α of itself and 1 − α of the
others, with one α from 1/2 to 1 for all. Sources minimise cross-entropy, the target λ · entropy of its predictions.

Sent every round: mean and variance of the batch, 2m numbers, up from all clients; the target's down to each source and
the sources' to the target. Every T rounds: G, W, C and α (D = 1) from all clients, and the averages down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrf.methods.averaging import NETWORK_AND_MESSAGES
from fedrf.methods.base import PLAIN_STEPS, Inbox, Losses, MomentMethod, classification_loss
from fedrf.methods.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedrf.config.schema import Config
    from fedrf.models.network import Batch, DomainModel


class AutoDIAL(MomentMethod):
    """Batch normalisation with a learned mixture of domains."""

    name = "autodial"
    summary = "batch normalisation with a learned mixture of the domains' statistics"
    settings = {**NETWORK_AND_MESSAGES, "align.weight": 0.1}
    target_trains = ("aligner", "extractor", "classifier")
    target_steps = PLAIN_STEPS
    normalizes = True
    shares_auxiliary = True
    balances_auxiliary = True
    bytes_per_round = "4 * (3*K + 1) * 2*m + 4 * (2*K + 2) * (G + W + C + D) / T"

    def auxiliary_network(self, config: Config, num_peers: int, width: int) -> nn.Module:
        """Return the share α."""
        from fedrf.models.mixture_share import MixtureShare

        return MixtureShare()

    def source_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return cross-entropy, with the target's statistics in the mixture."""
        use_statistics(model, inbox)
        return classification_loss(model, batch, features, config)

    def target_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return λ · entropy, with the sources' statistics in the mixture."""
        from fedrf.adaptation.information import entropy

        use_statistics(model, inbox)
        mean = entropy(model.logits(features).softmax(1)).mean()
        return {"loss": config.align.weight * mean, "entropy_of_batch": mean.detach()}


def use_statistics(model: DomainModel, inbox: Inbox) -> None:
    """Mix in the peers' statistics from now on."""
    from fedrf.models.normalization import mixed_moments

    if inbox.peers and model.normalization is not None:
        peers = torch.stack(inbox.peers)
        model.normalization.others.copy_(mixed_moments(peers, peers.new_full((len(peers),), 1 / len(peers))))
