"""References that are not federated: one client has the samples of all sources, and possibly those of the target.

`pooled` trains on all sources together. `pooled-ddc` and `pooled-dan` add the MMD between sources and target (Tzeng et
al. 2014, Long et al. 2015), `pooled-dann` and `pooled-cdan` a discriminator between them (Ganin et al. 2016, Long et
al. 2018). `target-oracle` trains with the labels of half of the target's samples and is scored on the other half: an
oracle, an upper bound for methods without these labels.

Sent: all samples once, in the size that they have on disk (`samples` in the ledger, which grows with n), and every T
rounds G, W and C up, down to the target, and back: an average over one client is handled like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from fedrf.methods.adversary import annealing, conditioned, domain_discriminator, growing_strength, pair_loss
from fedrf.methods.averaging import NETWORK
from fedrf.methods.base import Inbox, Losses, Method, classification_loss
from fedrf.methods.sample_mmd import gaussian_mmd, multi_kernel_mmd

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedrf.config.schema import Config
    from fedrf.models.network import Batch, DomainModel


class Pooled(Method):
    """Cross-entropy on the samples of all sources."""

    name = "pooled"
    summary = "not federated: train on the samples of all sources"
    settings = NETWORK
    target_trains = ()
    pooling: ClassVar[Literal["none", "sources", "all", "oracle"]] = "sources"
    bytes_per_round = "4 * 3 * (G + W + C) / T"


class PooledDDC(Pooled):
    """MMD between pooled sources and target, for one Gaussian kernel on the aligned features."""

    name = "pooled-ddc"
    summary = "not federated: DDC on the samples of all domains"
    pooling = "all"

    def source_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return cross-entropy + λ · MMD; the peer is a batch of the target's samples, which is trained on too."""
        losses = classification_loss(model, batch, features, config)
        mmd = self.discrepancy(model, model.align(features), inbox.peers[0])
        return losses | {"loss": losses["loss"] + config.align.weight * mmd, "mmd": mmd.detach()}

    def discrepancy(self, model: DomainModel, rows: Tensor, others: Tensor) -> Tensor:
        """Return the MMD between the aligned features of two batches."""
        return gaussian_mmd(rows, others)


class PooledDAN(PooledDDC):
    """MMD between pooled sources and target, for several kernels and summed over two layers."""

    name = "pooled-dan"
    summary = "not federated: DAN on the samples of all domains"

    def discrepancy(self, model: DomainModel, rows: Tensor, others: Tensor) -> Tensor:
        """Return the MMD between the aligned features of two batches, plus that between their logits."""
        logits, other_logits = (model.classifier(model.scale * aligned) for aligned in (rows, others))
        return multi_kernel_mmd(rows, others) + multi_kernel_mmd(logits, other_logits)


class PooledDANN(Pooled):
    """A discriminator between pooled sources and target, on aligned features.

    As in its paper, learning rates decay, and pretrained layers have a tenth of the others' rate. Without the two, Adam
    follows the discriminator once the sources are fitted, and accuracies collapse in some runs.
    """

    name = "pooled-dann"
    summary = "not federated: DANN on the samples of all domains"
    settings = {**NETWORK, "train.extractor_lr_factor": 0.1}
    pooling = "all"
    is_conditional = False

    def rate_factor(self, number: int, rounds: int) -> float:
        """Return the annealing of the learning rates."""
        return annealing(number, rounds)

    def auxiliary_network(self, config: Config, num_peers: int, width: int) -> nn.Module:
        """Return the discriminator."""
        return domain_discriminator(config, self.is_conditional)

    def source_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return cross-entropy + λ · loss of the discriminator; the peer is a batch of the target's samples."""
        losses = classification_loss(model, batch, features, config)
        rows, others = model.align(features), inbox.peers[0]
        if self.is_conditional:
            rows, others = conditioned(model, rows), conditioned(model, others)
        strength = growing_strength(batch.round, config.train.rounds)
        adversarial = pair_loss(model.auxiliary, rows, others, True, strength)
        loss = losses["loss"] + config.align.weight * adversarial
        return losses | {"loss": loss, "adversarial": adversarial.detach()}


class PooledCDAN(PooledDANN):
    """A discriminator between pooled sources and target, on features times class probabilities."""

    name = "pooled-cdan"
    summary = "not federated: CDAN on the samples of all domains"
    is_conditional = True


class TargetOracle(Pooled):
    """Cross-entropy on half of the target's samples with their labels."""

    name = "target-oracle"
    summary = "oracle: train with labels of half of the target"
    pooling = "oracle"
