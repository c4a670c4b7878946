"""f-DAN: DAN (Long et al. 2015) between clients, a baseline of Peng et al. (2020).

Each pair of a source and the target minimises the multi-kernel MMD between the aligned features of two batches; sources
add their cross-entropy. Features of the samples in a batch leave the clients, never those of all samples at once.

Sent every round: B aligned features from all clients up; the target's down to each source, the sources' to the target.
Every T rounds: G and W from all clients, C from the sources, and the averages down. In async mode features are as old
as the model of their sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fedrf.methods.averaging import NETWORK_AND_MESSAGES
from fedrf.methods.base import PLAIN_STEPS, FeatureMethod, Inbox, Losses, classification_loss, mean_distance
from fedrf.methods.sample_mmd import multi_kernel_mmd

if TYPE_CHECKING:
    from torch import Tensor

    from fedrf.config.schema import Config
    from fedrf.models.network import Batch, DomainModel

BYTES = "4 * (3*K + 1) * B*m + 4 * ((2*K + 2) * (G + W) + (2*K + 1) * C) / T"


class FDAN(FeatureMethod):
    """MMD between batches of aligned features."""

    name = "f-dan"
    summary = "multi-kernel MMD between batches of aligned features"
    settings = NETWORK_AND_MESSAGES
    target_trains: ClassVar[tuple[str, ...]] = ("aligner", "extractor")
    target_steps = PLAIN_STEPS
    bytes_per_round = BYTES
    distance = staticmethod(multi_kernel_mmd)

    def source_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return cross-entropy + λ · MMD to the target."""
        losses = classification_loss(model, batch, features, config)
        if inbox.peers:
            mmd = mean_distance(self.distance, inbox)
            losses |= {"loss": losses["loss"] + config.align.weight * mmd, "mmd": mmd.detach()}
        return losses

    def target_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return λ · mean MMD to the sources."""
        mmd = mean_distance(self.distance, inbox)
        return {"mmd": mmd.detach()} | ({"loss": config.align.weight * mmd} if inbox.peers else {})
