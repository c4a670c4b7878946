"""FedKA (Sun et al. 2023): features matched in a common space, and sources that vote on the target's labels.

All clients minimise the multi-kernel MMD to the target's features, or the target to theirs. The target looks at its
batch through every source's network; where more than half of them name the same class, it learns that class too.

Sent: as f-DAN with the target's C, and every T rounds G, W and C of each source to the target. Bytes a round:
``4 * (3*K + 1) * B*m + 4 * (3*K + 2) * (G + W + C) / T``. Asynchronous: no, votes are for networks of one round.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fedrf.config.schema import Config
from fedrf.methods import f_dan
from fedrf.methods.base import Inbox, Losses, Method, opinions
from fedrf.methods.sample_mmd import multi_kernel_mmd
from fedrf.models.network import Batch, DomainModel


def majority(chances: Tensor) -> tuple[Tensor, Tensor]:
    """Return the class with most votes for each sample, and which samples have it from more than half of all.

    `chances` are class probabilities of K networks, K × n × classes.
    """
    votes = one_hot(chances.argmax(2), chances.shape[2]).sum(0)
    most = votes.max(1)
    return most.indices, most.values * 2 > len(chances)


def target_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """λ · mean MMD to the sources + cross-entropy on what most of them vote for."""
    losses = f_dan.target_loss(multi_kernel_mmd, model, batch, features, inbox, config)
    if not inbox.models:
        return losses
    classes, agreed = majority(opinions(model, batch.inputs, inbox.models))
    losses["agreed"] = agreed.float().mean()
    if agreed.any():
        vote = cross_entropy(model.logits(features)[agreed], classes[agreed])
        losses |= {"loss": losses.get("loss", vote.new_zeros(())) + vote, "vote": vote.detach()}
    return losses


METHODS = (Method("fedka", partial(f_dan.source_loss, multi_kernel_mmd), target_loss),)
