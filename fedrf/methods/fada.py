"""FADA (Peng et al. 2020): adversarial alignment with disentangled features and attention to helpful sources.

**Alignment** is that of f-DANN. **Disentangling**: beside W, which maps to the features that are aligned and
classified, each client has a matrix V of its own for features that are specific to its domain. A classifier must not
predict the class from VᵀG(x) (its gradient is reversed for V), VᵀG(x) must not share information with WᵀG(x) (MINE,
Belghazi et al. 2018), and both together must reconstruct G(x). **Attention**: the target clusters its samples with the
network of every source. In the next average a source counts the more, the tighter its clusters are.

Sent: as f-DAN, and every T rounds G, W and C of each source to the target, which answers with K + 1 weights. Weights
compare networks of one round, so the method is synchronous.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedrf.data.domains import num_classes
from fedrf.methods.adversary import WIDTH, reverse
from fedrf.methods.averaging import NETWORK_AND_MESSAGES
from fedrf.methods.base import Inbox, Losses, Models
from fedrf.methods.f_dann import FDANN
from fedrf.methods.lazy_torch import functional, nn, torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedrf.config.schema import Config
    from fedrf.models.network import Batch, DomainModel

DISENTANGLING = 0.1  # weight of the terms about V
CLUSTERING_STEPS = 10
MAX_SAMPLES = 256  # of the target, for comparing clusters
SHARPNESS = 10.0  # of the attention, for spreads between 0 and 1


class FADA(FDANN):
    """f-DANN with disentangled features and attention."""

    name = "fada"
    summary = "f-dann with disentangled features and attention to sources"
    settings = {**NETWORK_AND_MESSAGES, "federation.mode": "sync", "federation.aggregation": "chosen"}
    shows_sources = True
    weighs_sources = True
    asynchronous = False
    bytes_per_round = "4 * (3*K + 1) * B*m + 4 * ((3*K + 2) * (G + W) + (3*K + 1) * C + K + 1) / T"

    def auxiliary_network(self, config: Config, num_peers: int, width: int) -> nn.ModuleDict:
        """Return the discriminators, V, and the networks that disentangle."""
        network, dim = super().auxiliary_network(config, num_peers, width), config.model.dim
        network.register_parameter("specific", nn.Parameter(torch.randn(width, dim) / width**0.5))
        network["classes_of_specific"] = nn.Linear(dim, num_classes(config.data))
        network["dependence"] = nn.Sequential(nn.Linear(2 * dim, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
        network["rebuild"] = nn.Linear(2 * dim, width)
        return network

    def source_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return the loss of f-DANN + the disentangling loss."""
        return _with_disentangling(super().source_loss(model, batch, features, inbox, config), model, batch, features)

    def target_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return the loss of f-DANN + the disentangling loss."""
        return _with_disentangling(super().target_loss(model, batch, features, inbox, config), model, batch, features)

    def weigh_sources(self, model: DomainModel, inputs: Tensor, models: Models) -> tuple[Mapping[str, float], float]:
        """Return weights of the sources that sum to K; the target counts 1."""
        from fedrf.adaptation.scores import evenly
        from fedrf.models.parts import outputs_with

        inputs = inputs[torch.from_numpy(evenly(len(inputs), MAX_SAMPLES)).to(inputs.device)]
        spreads = [
            spread(outputs_with(model, parts, inputs, "aligned"), model.num_classes) for parts in models.values()
        ]
        weights = (-SHARPNESS * torch.tensor(spreads)).softmax(0) * len(spreads)
        return dict(zip(models, weights.tolist(), strict=True)), 1.0


def _with_disentangling(losses: Losses, model: DomainModel, batch: Batch, features: Tensor) -> Losses:
    entangled = disentangling_loss(model, batch, features)
    zero = features.new_zeros(())
    return losses | {"loss": losses.get("loss", zero) + DISENTANGLING * entangled, "disentangling": entangled.detach()}


def disentangling_loss(model: DomainModel, batch: Batch, features: Tensor) -> Tensor:
    """Return the loss of V and of the networks that disentangle."""
    network = model.auxiliary
    assert isinstance(network, nn.ModuleDict)
    shared, specific = model.align(features), functional.normalize(features @ network.get_parameter("specific"))
    both = torch.cat([shared, specific], dim=1)
    shuffled = torch.cat([shared, specific.roll(1, dims=0)], dim=1)
    # Donsker and Varadhan's lower bound of the mutual information: the network raises it, the features lower it.
    joint, product = network["dependence"](reverse(both)), network["dependence"](reverse(shuffled))
    information = joint.mean() - (product.logsumexp(0).squeeze() - torch.tensor(float(len(product))).log())
    rebuilt = functional.mse_loss(network["rebuild"](both), features.detach(), reduction="sum") / len(features)
    loss: Tensor = rebuilt - information
    if batch.labels is not None:
        loss = loss + functional.cross_entropy(network["classes_of_specific"](reverse(specific)), batch.labels)
    return loss


def spread(rows: Tensor, clusters: int) -> float:
    """Return the mean squared distance to the nearest of so many centres, by k-means.

    The first centres are evenly spaced rows. Samples are shuffled when they are loaded, so these are random ones.
    """
    from fedrf.adaptation.scores import evenly

    centres = rows[torch.from_numpy(evenly(len(rows), min(clusters, len(rows))))]
    for _ in range(CLUSTERING_STEPS):
        nearest = torch.cdist(rows, centres).argmin(1)
        members = functional.one_hot(nearest, len(centres)).to(rows)
        counts = members.sum(0)[:, None]
        centres = torch.where(counts > 0, members.T @ rows / counts.clamp(min=1), centres)
    return float(torch.cdist(rows, centres).min(1).values.square().mean())
