"""KD3A (Feng et al. 2021): the target learns from what confident sources agree on, and weighs them by it.

**Knowledge vote**: of the sources that are sure of a sample, those count that name the class that most of them name;
their mean prediction is what the target learns, the more, the more of them there are. **Consensus focus**: a source
counts for how much worse the consensus would be without it, whatever its number of samples, and from the next average
on. **BatchNorm-MMD**: the target's aligned features are to have the means and variances that the sources' have.

Sent every round: mean and variance of the batch, 2m numbers, up from all clients; the target's down to each source and
the sources' to the target. Every T rounds: G, W and C from all clients, the averages down, each source's to the target,
and K + 1 weights from it. Bytes a round:
``4 * (3*K + 1) * 2*m + 4 * ((3*K + 2) * (G + W + C) + K + 1) / T``. Asynchronous: no, votes are for networks of one
round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fedrf.config.schema import Config
from fedrf.methods import base
from fedrf.methods.base import Inbox, Losses, Method, Models, classification_loss
from fedrf.models.network import Batch, DomainModel

SURE = 0.9  # probability from which on a source counts
HARDLY = 1e-3  # weight of a sample of which no source is sure


class Consensus(NamedTuple):
    """For each sample: the prediction to learn, and how many sources stand behind it."""

    prediction: Tensor
    support: Tensor

    @property
    def quality(self) -> float:
        """Sum over samples of support times confidence."""
        return float((self.support * self.prediction.max(1).values).sum())


def knowledge_vote(opinions: Tensor) -> Consensus:
    """Return the consensus of K networks, from their class probabilities, K × n × classes."""
    confidence, named = opinions.max(2)
    sure = (confidence >= SURE).to(opinions)
    votes = (one_hot(named, opinions.shape[2]) * sure[:, :, None]).sum(0)
    # Probabilities are less than one vote, and decide between classes that have equally many.
    chosen = (votes + opinions.mean(0) / 2).argmax(1)
    behind = sure * (named == chosen)
    support = behind.sum(0)
    anybody = support > 0
    weights = torch.where(anybody, behind, torch.ones_like(behind))
    prediction = (weights[:, :, None] * opinions).sum(0) / weights.sum(0)[:, None]
    return Consensus(prediction, torch.where(anybody, support, torch.full_like(support, HARDLY)))


def consensus_focus(opinions: Tensor) -> Tensor:
    """Return for each of K networks how much quality the consensus would lose without it, as shares."""
    whole = knowledge_vote(opinions).quality
    others = [torch.cat([opinions[:one], opinions[one + 1 :]]) for one in range(len(opinions))]
    lost = torch.tensor([whole - (knowledge_vote(rest).quality if len(rest) else 0.0) for rest in others]).clamp(min=0)
    return lost / lost.sum() if lost.sum() > 0 else torch.full_like(lost, 1 / len(lost))


def moment_distance(own: Tensor, peer: Tensor) -> Tensor:
    """Squared distances of means and of deviations, in units of the peer's own size."""
    scale = (peer[0].square() + peer[1]).sum().clamp(min=torch.finfo(peer.dtype).tiny)
    deviations = (own[1].clamp(min=1e-12).sqrt() - peer[1].sqrt()).square().sum()
    return ((own[0] - peer[0]).square().sum() + deviations) / scale


def target_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """Distillation of the consensus + λ · distance of moments."""
    if not inbox.peers or not inbox.models:
        return {}
    consensus = knowledge_vote(base.opinions(model, batch.inputs, inbox.models))
    each = cross_entropy(model.logits(features), consensus.prediction, reduction="none")
    distilled = (consensus.support * each).mean()
    apart = base.mean_distance(moment_distance, inbox)
    return {
        "loss": distilled + config.align.weight * apart,
        "distilled": distilled.detach(),
        "moments": apart.detach(),
        "support": consensus.support.mean(),
    }


def weigh(model: DomainModel, inputs: Tensor, models: Models) -> tuple[Mapping[str, float], float]:
    """Return what sources count by consensus focus, K in sum; the target counts 1."""
    shares = consensus_focus(base.opinions(model, inputs, models))
    return dict(zip(models, (shares * len(models)).tolist(), strict=True)), 1.0


METHODS = (Method("kd3a", classification_loss, target_loss, weigh=weigh),)
