"""A custom extractor: magnitudes of the lowest frequencies of an image, which do not change when it moves.

Run it with `fedrf run model.extractor=low_frequencies:LowFrequencies`.
"""

import torch
from torch import nn

from fedrf.models.extractors.extractor import Extractor
from fedrf.models.extractors.layers import Pixels, ResidualBlock

FREQUENCIES = 8


class Magnitudes(nn.Module):
    """Images (n, channels, height, width) to magnitudes of their lowest frequencies."""

    def forward(self, images):
        """Return one row for each image; colours are averaged."""
        spectrum = torch.fft.rfft2(images.mean(1), norm="ortho").abs()
        return torch.cat(
            [spectrum[:, :FREQUENCIES, :FREQUENCIES], spectrum[:, -FREQUENCIES:, :FREQUENCIES]], 1
        ).flatten(1)


class LowFrequencies(Extractor):
    """A frozen trunk, and a residual block that can be trained (`model.sharing`)."""

    takes_features = False  # images only
    is_learned = False  # it can be frozen

    def __init__(self, shape, weights):
        size = 2 * FREQUENCIES * FREQUENCIES
        if shape is None or len(shape) != 3 or min(shape[1:]) < 2 * FREQUENCIES:
            raise ValueError(f"LowFrequencies needs images of at least {2 * FREQUENCIES} pixels; got {shape}")
        super().__init__(nn.Sequential(Pixels(), Magnitudes()), ResidualBlock(size), size)
