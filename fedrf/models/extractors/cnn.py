"""A small convolutional network that is trained from scratch."""

from __future__ import annotations

from torch import nn

from fedrf.models.extractors.layers import Pixels


def small_cnn(channels: int, out_features: int = 128) -> nn.Sequential:
    """Return a network for images (n, channels, h, w) of at least 4 × 4 pixels.

    Group instead of batch normalisation: the only state is the weights.
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
