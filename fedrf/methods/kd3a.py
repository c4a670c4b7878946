"""KD3A (Feng et al. 2021): the target learns the consensus of confident sources, and weighs sources by it.

**Knowledge vote**: among the sources that are confident about a sample, those count that predict the class with most
votes. The target learns their mean prediction, with a weight that grows with their number. **Consensus focus**: in the
next average a source counts by how much worse the consensus would be without it. **BatchNorm-MMD**: the target's
aligned features are trained to have the means and variances of the sources'.

Sent every round: mean and variance of the batch, 2m numbers, up from all clients; the target's down to each source and
the sources' to the target. Every T rounds: G, W and C from all clients, the averages down, each source's to the target,
and K + 1 weights from it. Votes are those of networks of one round, so the method is synchronous.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from fedrf.methods.averaging import NETWORK_AND_MESSAGES
from fedrf.methods.base import PLAIN_STEPS, Inbox, Losses, Models, MomentMethod, mean_distance, predictions_of_sources
from fedrf.methods.lazy_torch import functional, torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedrf.config.schema import Config
    from fedrf.models.network import Batch, DomainModel

CONFIDENT = 0.9  # least probability with which a source votes
UNSUPPORTED = 1e-3  # weight of a sample for which no source votes


class KD3A(MomentMethod):
    """Distillation of the consensus of confident sources."""

    name = "kd3a"
    summary = "distillation of the sources' consensus, weighted by consensus focus"
    settings = {
        **NETWORK_AND_MESSAGES,
        "federation.mode": "sync",
        "federation.aggregation": "chosen",
        "train.label_smoothing": 0.0,  # with smoothing no prediction is confident
    }
    target_trains = ("aligner", "extractor", "classifier")
    target_steps = PLAIN_STEPS
    shows_sources = True
    weighs_sources = True
    asynchronous = False
    bytes_per_round = "4 * (3*K + 1) * 2*m + 4 * ((3*K + 2) * (G + W + C) + K + 1) / T"

    def target_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return distillation of the consensus + λ · distance of moments."""
        if not inbox.peers or not inbox.models:
            return {}
        consensus = knowledge_vote(predictions_of_sources(model, batch.inputs, inbox.models))
        each = functional.cross_entropy(model.logits(features), consensus.prediction, reduction="none")
        distilled = (consensus.support * each).mean()
        distance = mean_distance(moment_distance, inbox)
        return {
            "loss": distilled + config.align.weight * distance,
            "distilled": distilled.detach(),
            "moments": distance.detach(),
            "support": consensus.support.mean(),
        }

    def weigh_sources(self, model: DomainModel, inputs: Tensor, models: Models) -> tuple[Mapping[str, float], float]:
        """Return weights of the sources by consensus focus that sum to K; the target counts 1."""
        shares = consensus_focus(predictions_of_sources(model, inputs, models))
        return dict(zip(models, (shares * len(models)).tolist(), strict=True)), 1.0


class Consensus(NamedTuple):
    """For each sample: the prediction to learn, and how many sources support it."""

    prediction: Tensor
    support: Tensor

    @property
    def quality(self) -> float:
        """Sum over samples of support times confidence."""
        return float((self.support * self.prediction.max(1).values).sum())


def knowledge_vote(probabilities: Tensor) -> Consensus:
    """Return the consensus of K networks, from their class probabilities, K × n × classes."""
    confidence, predicted = probabilities.max(2)
    confident = (confidence >= CONFIDENT).to(probabilities)
    votes = (functional.one_hot(predicted, probabilities.shape[2]) * confident[:, :, None]).sum(0)
    # Mean probabilities are less than one vote: they decide between classes with equally many votes.
    chosen = (votes + probabilities.mean(0) / 2).argmax(1)
    supports = confident * (predicted == chosen)
    support = supports.sum(0)
    is_supported = support > 0
    weights = torch.where(is_supported, supports, torch.ones_like(supports))
    prediction = (weights[:, :, None] * probabilities).sum(0) / weights.sum(0)[:, None]
    return Consensus(prediction, torch.where(is_supported, support, torch.full_like(support, UNSUPPORTED)))


def consensus_focus(probabilities: Tensor) -> Tensor:
    """Return for each of K networks the loss of consensus quality without it, as shares."""
    whole = knowledge_vote(probabilities).quality
    others = [torch.cat([probabilities[:k], probabilities[k + 1 :]]) for k in range(len(probabilities))]
    lost = torch.tensor([whole - (knowledge_vote(rest).quality if len(rest) else 0.0) for rest in others]).clamp(min=0)
    return lost / lost.sum() if lost.sum() > 0 else torch.full_like(lost, 1 / len(lost))


def moment_distance(own: Tensor, peer: Tensor) -> Tensor:
    """Return the squared distances of means and of standard deviations, in units of the peer's second moment."""
    scale = (peer[0].square() + peer[1]).sum().clamp(min=torch.finfo(peer.dtype).tiny)
    deviations = (own[1].clamp(min=1e-12).sqrt() - peer[1].sqrt()).square().sum()
    return ((own[0] - peer[0]).square().sum() + deviations) / scale
