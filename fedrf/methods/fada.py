"""FADA (Peng et al. 2020): adversarial alignment with disentangled features and attention to helpful sources.

**Alignment** is that of f-DANN. **Disentangling**: beside W, which maps to the features that are aligned and
classified, each client has a matrix V of its own for what is specific to its domain. From VᵀG(x) no class is to be told
(a classifier tries, V prevents it), it is to share no information with WᵀG(x) (MINE, Belghazi et al. 2018), and the two
together are to tell what G(x) was. **Attention**: the target looks at its samples through every source's network, and
in the next average sources count the more, the tighter the clusters are that they make of them.

Sent: as f-DAN, and every T rounds G, W and C of each source to the target, which answers with K + 1 weights. Bytes a
round: ``4 * (3*K + 1) * B*m + 4 * ((3*K + 2) * (G + W) + (3*K + 1) * C + K + 1) / T``. Asynchronous: no, weights
compare networks of one round.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, normalize

from fedrf.adaptation.scores import evenly
from fedrf.config.schema import HIDDEN, Config
from fedrf.data.registry import num_classes
from fedrf.methods import f_dann
from fedrf.methods.adversary import reverse
from fedrf.methods.base import Inbox, Losses, Method, Models
from fedrf.models.network import Batch, DomainModel

DISENTANGLING = 0.1  # weight of the terms about V
CLUSTERING_STEPS = 10
LOOKED_AT = 256  # samples of the target, where clusters are compared
SHARPNESS = 10.0  # of attention, for spreads that lie between 0 and 1


class Companion(f_dann.Discriminators):
    """The discriminators, and with them what disentangles."""

    def __init__(self, config: Config, peers: int, width: int) -> None:
        super().__init__(config, peers, width)
        dim = config.model.dim
        self.specific = nn.Parameter(torch.randn(width, dim) / width**0.5)
        self.classes_of_specific = nn.Linear(dim, num_classes(config.data))
        self.dependence = nn.Sequential(nn.Linear(2 * dim, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
        self.rebuild = nn.Linear(2 * dim, width)


def disentangling_loss(model: DomainModel, batch: Batch, features: Tensor) -> Tensor:
    """Return what V and its helpers are trained for."""
    companion = model.companion
    assert isinstance(companion, Companion)
    shared, specific = model.align(features), normalize(features @ companion.specific)
    both = torch.cat([shared, specific], dim=1)
    apart = torch.cat([shared, specific.roll(1, dims=0)], dim=1)
    # Donsker and Varadhan's lower bound of the information: the network raises it, the features lower it.
    scores, others = companion.dependence(reverse(both)), companion.dependence(reverse(apart))
    information = scores.mean() - (others.logsumexp(0).squeeze() - torch.tensor(float(len(others))).log())
    loss: Tensor = mse_loss(companion.rebuild(both), features.detach(), reduction="sum") / len(features) - information
    if batch.labels is not None:
        loss = loss + cross_entropy(companion.classes_of_specific(reverse(specific)), batch.labels)
    return loss


def source_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """f-DANN's loss, and disentangling."""
    return _with_disentangling(f_dann.source_loss(model, batch, features, inbox, config), model, batch, features)


def target_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """f-DANN's loss, and disentangling."""
    return _with_disentangling(f_dann.target_loss(model, batch, features, inbox, config), model, batch, features)


def _with_disentangling(losses: Losses, model: DomainModel, batch: Batch, features: Tensor) -> Losses:
    entangled = disentangling_loss(model, batch, features)
    zero = features.new_zeros(())
    return losses | {"loss": losses.get("loss", zero) + DISENTANGLING * entangled, "disentangling": entangled.detach()}


def spread(rows: Tensor, clusters: int) -> float:
    """Mean squared distance to the nearest of so many centres, by k-means begun from rows at even places."""
    centres = rows[torch.from_numpy(evenly(len(rows), min(clusters, len(rows))))]
    for _ in range(CLUSTERING_STEPS):
        nearest = torch.cdist(rows, centres).argmin(1)
        members = torch.nn.functional.one_hot(nearest, len(centres)).to(rows)
        counts = members.sum(0)[:, None]
        centres = torch.where(counts > 0, members.T @ rows / counts.clamp(min=1), centres)
    return float(torch.cdist(rows, centres).min(1).values.square().mean())


def attention(model: DomainModel, inputs: Tensor, models: Models) -> tuple[Mapping[str, float], float]:
    """How much each source counts: K in sum; the target itself counts 1."""
    inputs = inputs[torch.from_numpy(evenly(len(inputs), LOOKED_AT)).to(inputs.device)]
    spreads = [spread(model.seen_with(parts, inputs, "aligned"), model.num_classes) for parts in models.values()]
    shares = (-SHARPNESS * torch.tensor(spreads)).softmax(0) * len(spreads)
    return dict(zip(models, shares.tolist(), strict=True)), 1.0


METHODS = (Method("fada", source_loss, target_loss, Companion, weigh=attention),)
