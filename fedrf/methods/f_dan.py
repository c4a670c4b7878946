"""f-DAN: DAN (Long et al. 2015) between clients, as Peng et al. (2020) compare with.

Each pair of a source and the target minimises the multi-kernel MMD between the aligned features of two batches; sources
add their cross-entropy. Features of single samples leave the clients, though never those of all samples at once.

Sent every round: B aligned features from all clients up; the target's down to each source, the sources' to the target.
Every T rounds: G and W from all clients, C from the sources, and the averages down. Bytes a round:
``4 * (3*K + 1) * B*m + 4 * ((2*K + 2) * (G + W) + (2*K + 1) * C) / T``. Asynchronous: yes, with features that are as
old as their sender's model.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from fedrf.config.schema import Config
from fedrf.methods.base import Distance, Inbox, Losses, Method, classification_loss, mean_distance
from fedrf.methods.sample_mmd import multi_kernel_mmd
from fedrf.models.network import Batch, DomainModel


def source_loss(
    distance: Distance, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config
) -> Losses:
    """Cross-entropy + λ · MMD to the target."""
    losses = classification_loss(model, batch, features, inbox, config)
    if inbox.peers:
        mmd = mean_distance(distance, inbox)
        losses |= {"loss": losses["loss"] + config.align.weight * mmd, "mmd": mmd.detach()}
    return losses


def target_loss(
    distance: Distance, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config
) -> Losses:
    """λ · mean MMD to the sources."""
    mmd = mean_distance(distance, inbox)
    return {"mmd": mmd.detach()} | ({"loss": config.align.weight * mmd} if inbox.peers else {})


METHODS = (Method("f-dan", partial(source_loss, multi_kernel_mmd), partial(target_loss, multi_kernel_mmd)),)
