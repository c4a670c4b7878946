"""Images for the tests of backbones."""

import torch
from torch import nn


def noisy_patches(count, side, seed=0):
    """Images of coarse patches with noise, because the features of pure noise are all similar."""
    generator = torch.Generator().manual_seed(seed)
    patches = torch.rand(count, 3, 6, 6, generator=generator)
    smooth = nn.functional.interpolate(patches, size=(side, side), mode="bilinear")
    noise = 0.1 * torch.randn(count, 3, side, side, generator=generator)
    return (255 * (smooth + noise)).clamp(0, 255).to(torch.uint8)
