"""Features of small images at two scales, averaged over image and negative.

Handwriting may be light on dark or dark on light: an image and its negative have the same features.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fedrf.models.extractors.layers import fold
from fedrf.models.extractors.warp import draw_warps, warp

NUM_VIEWS = 2  # image and negative


class LowerBlocks(nn.Module):
    """The fixed blocks: for each scale, the feature maps of the image and of its negative, flattened into one row."""

    def __init__(self, scales: Sequence[nn.Module]) -> None:
        super().__init__()
        self.scales = nn.ModuleList(scales)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the feature maps of images with pixels from 0 to 255."""
        return torch.cat([scale(view).flatten(1) for scale in self.scales for view in (x, 255 - x)], dim=1)


class UpperBlocks(nn.Module):
    """The learnable blocks: from rows of `LowerBlocks` to features, averaged over views, of norm 1 for each scale.

    Parameters
    ----------
    blocks
        Applied to the feature maps.
    depths
        Number of blocks that each scale goes through.
    maps
        Channels, height and width of the feature maps of each scale.
    """

    def __init__(self, blocks: nn.Sequential, depths: Sequence[int], maps: Sequence[tuple[int, int, int]]) -> None:
        super().__init__()
        self.blocks, self.depths, self.maps = blocks.eval(), tuple(depths), tuple(maps)
        fold(self)
        self.requires_grad_(True)  # including biases that folding added

    def extra_repr(self) -> str:
        """Return settings that are in no weight but change the output; cache keys contain them."""
        return f"depths={self.depths}, maps={self.maps}"

    def forward(self, rows: Tensor) -> Tensor:
        """Compute the features of all rows."""
        features = []
        for depth, maps in zip(self.depths, self._maps(rows), strict=True):
            upper = self.blocks[:depth](maps.contiguous(memory_format=torch.channels_last))
            features.append(normalize(upper.reshape(len(rows), NUM_VIEWS, -1).mean(1)))
        return torch.cat(features, dim=1)

    def augmented(self, rows: Tensor, random: np.random.RandomState) -> Tensor:
        """Apply one random affine transform per sample to all of its feature maps."""
        warps = draw_warps(len(rows), random).repeat_interleave(NUM_VIEWS, dim=0)
        return torch.cat([warp(maps, warps).reshape(len(rows), -1) for maps in self._maps(rows)], dim=1)

    def _maps(self, rows: Tensor) -> list[Tensor]:
        """Return the feature maps of each scale; the views of a sample are adjacent."""
        pieces = rows.split([NUM_VIEWS * prod(shape) for shape in self.maps], dim=1)
        return [piece.reshape(-1, *shape) for shape, piece in zip(self.maps, pieces, strict=True)]
