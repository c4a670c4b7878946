"""FedKA (Sun et al. 2023): features matched in a common space, and sources that vote on the target's labels.

Sources minimise the multi-kernel MMD to the target's features, and the target the MMD to theirs. The target also
classifies its batch with the network of every source. Samples for which more than half of them predict the same class
are trained with that class.

Sent: as f-DAN with the target's C, and every T rounds G, W and C of each source to the target. Votes are those of
networks of one round, so the method is synchronous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrf.methods.averaging import NETWORK_AND_MESSAGES
from fedrf.methods.base import Inbox, Losses, predictions_of_sources
from fedrf.methods.f_dan import FDAN
from fedrf.methods.lazy_torch import functional

if TYPE_CHECKING:
    from torch import Tensor

    from fedrf.config.schema import Config
    from fedrf.models.network import Batch, DomainModel


class FedKA(FDAN):
    """MMD between batches, and a vote of the sources."""

    name = "fedka"
    summary = "f-dan, and cross-entropy on labels that most sources agree on"
    settings = {**NETWORK_AND_MESSAGES, "federation.mode": "sync"}
    target_trains = ("aligner", "extractor", "classifier")
    shows_sources = True
    asynchronous = False
    bytes_per_round = "4 * (3*K + 1) * B*m + 4 * (3*K + 2) * (G + W + C) / T"

    def target_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return λ · mean MMD to the sources + cross-entropy on the classes that most sources predict."""
        losses = super().target_loss(model, batch, features, inbox, config)
        if not inbox.models:
            return losses
        classes, agreed = majority(predictions_of_sources(model, batch.inputs, inbox.models))
        losses["agreed"] = agreed.float().mean()
        if agreed.any():
            vote = functional.cross_entropy(model.logits(features)[agreed], classes[agreed])
            losses |= {"loss": losses.get("loss", vote.new_zeros(())) + vote, "vote": vote.detach()}
        return losses


def majority(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Return the class with most votes for each sample, and for which samples more than half of all vote for it.

    Parameters
    ----------
    probabilities
        Class probabilities of K networks, K × n × classes.
    """
    votes = functional.one_hot(probabilities.argmax(2), probabilities.shape[2]).sum(0)
    most = votes.max(1)
    return most.indices, most.values * 2 > len(probabilities)
