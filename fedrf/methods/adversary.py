"""Discriminators that tell domains apart, and features that learn to prevent it."""

from __future__ import annotations

from math import exp
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrf.config.schema import HIDDEN, Config
from fedrf.data.registry import num_classes
from fedrf.models.network import DomainModel


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


def reverse(rows: Tensor, strength: float = 1.0) -> Tensor:
    """Return the same rows, whose gradient changes sign: what is behind them learns the opposite."""
    reversed_rows: Tensor = _Reversal.apply(rows, strength)
    return reversed_rows


def growing_strength(number: int, rounds: int) -> float:
    """From 0 to 1 over the rounds, as Ganin et al. (2016) do: discriminators first have to learn something."""
    return 2 / (1 + exp(-10 * number / rounds)) - 1


def discriminator(width: int) -> nn.Module:
    """Return a network with one hidden layer, whose output is positive for sources."""
    return nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))


def domain_discriminator(conditional: bool, config: Config, peers: int, width: int) -> nn.Module:
    """Return one for aligned features, or for what `conditioned` makes of them; as `Method.companion` wants it."""
    return discriminator(config.model.dim * (num_classes(config.data) if conditional else 1))


def conditioned(model: DomainModel, aligned: Tensor) -> Tensor:
    """Return features times predicted class probabilities, all with all (CDAN, Long et al. 2018)."""
    probabilities = model.classifier(model.scale * aligned).softmax(1).detach()
    return torch.einsum("ic,im->icm", probabilities, aligned).flatten(1)


def domain_loss(network: nn.Module, rows: Tensor, is_source: bool, strength: float) -> Tensor:
    """How badly rows of one domain are recognised; the network learns to, and the rows learn not to be."""
    logits = network(reverse(rows, strength))[:, 0]
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(is_source)))


def pair_loss(network: nn.Module, rows: Tensor, peers: Tensor, is_source: bool, strength: float) -> Tensor:
    """How badly a discriminator tells own rows from a peer's."""
    mine, theirs = (
        domain_loss(network, one, label, strength) for one, label in ((rows, is_source), (peers, not is_source))
    )
    return (mine + theirs) / 2
