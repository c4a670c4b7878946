"""Discriminators that classify domains, and features that are trained against them."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from fedrf.data.domains import num_classes
from fedrf.methods.lazy_torch import functional, nn, torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedrf.config.schema import Config
    from fedrf.models.network import DomainModel

WIDTH = 100  # neurons of the hidden layer


def reverse(rows: Tensor, strength: float = 1.0) -> Tensor:
    """Return the same rows with a gradient of opposite sign: what computes them is trained to increase the loss."""
    from fedrf.models.gradient_reversal import GradientReversal

    reversed_rows: Tensor = GradientReversal.apply(rows, strength)
    return reversed_rows


def growing_strength(number: int, rounds: int) -> float:
    """Return a weight that grows from 0 to 1 over the rounds (Ganin et al. 2016): discriminators learn first."""
    return 2 / (1 + exp(-10 * number / rounds)) - 1


def annealing(number: int, rounds: int) -> float:
    """Return a factor of learning rates that falls from 1 to 0.17 over the rounds (Ganin et al. 2016)."""
    return float((1 + 10 * number / rounds) ** -0.75)


def discriminator(width: int) -> nn.Module:
    """Return a network with one hidden layer whose output is positive for sources."""
    return nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))


def domain_discriminator(config: Config, is_conditional: bool) -> nn.Module:
    """Return a discriminator for aligned features, or for their products with class probabilities."""
    return discriminator(config.model.dim * (num_classes(config.data) if is_conditional else 1))


def conditioned(model: DomainModel, aligned: Tensor) -> Tensor:
    """Return the outer products of features and predicted class probabilities (CDAN, Long et al. 2018)."""
    probabilities = model.classifier(model.scale * aligned).softmax(1).detach()
    return torch.einsum("ic,im->icm", probabilities, aligned).flatten(1)


def domain_loss(network: nn.Module, rows: Tensor, is_source: bool, strength: float) -> Tensor:
    """Return the cross-entropy of a discriminator on rows of one domain, with a reversed gradient for the rows."""
    logits = network(reverse(rows, strength))[:, 0]
    return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(is_source)))


def pair_loss(network: nn.Module, rows: Tensor, peers: Tensor, is_source: bool, strength: float) -> Tensor:
    """Return the mean cross-entropy of a discriminator between a client's rows and those of a peer."""
    own = domain_loss(network, rows, is_source, strength)
    others = domain_loss(network, peers, not is_source, strength)
    return (own + others) / 2
