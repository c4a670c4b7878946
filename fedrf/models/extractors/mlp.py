"""A small multilayer perceptron that is trained from scratch."""

from __future__ import annotations

from math import prod

from torch import nn

from fedrf.models.extractors.layers import Pixels


def small_mlp(shape: tuple[int, ...], out_features: int = 128) -> nn.Sequential:
    """Return a network for samples of `shape`, images or rows of features.

    Layer instead of batch normalisation: the only state is the weights.
    """
    hidden = 256
    return nn.Sequential(
        Pixels(),
        nn.Flatten(),
        nn.Linear(prod(shape), hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, out_features),
    )
