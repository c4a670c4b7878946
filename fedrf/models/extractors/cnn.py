"""A small convolutional network, for extractors that are learned from scratch."""

from __future__ import annotations

from torch import nn

from fedrf.models.extractors.layers import Pixels


def small_cnn(channels: int, out_features: int = 128) -> nn.Sequential:
    """Return a network for images (n, channels, h, w) of at least 4 × 4 pixels.

    Groups instead of batches are normalised: nothing about a client's data is kept outside the weights.
    """
    return nn.Sequential(
        Pixels(),
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.GroupNorm(8, 64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(64 * 16, out_features),
    )
