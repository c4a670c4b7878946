"""Small pictures at two scales, as they are and as negatives: strokes may be light on dark or dark on light."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fedrf.models.extractors.layers import fold
from fedrf.models.extractors.warp import draw_warps, warp

WAYS = 2  # picture and negative


class LowerBlocks(nn.Module):
    """For each scale, the maps of pictures and of their negatives, all in one row."""

    def __init__(self, scales: Sequence[nn.Module]) -> None:
        super().__init__()
        self.scales = nn.ModuleList(scales)

    def forward(self, x: Tensor) -> Tensor:
        """Look at bytes in all ways."""
        return torch.cat([scale(way).flatten(1) for scale in self.scales for way in (x, 255 - x)], dim=1)


class UpperBlocks(nn.Module):
    """From such rows to features: the mean over picture and negative, of norm 1 for each scale.

    Parameters
    ----------
    blocks
        What comes next.
    depths
        How many of them see each scale.
    maps
        Channels, height and width of the maps of each scale.
    """

    def __init__(self, blocks: nn.Sequential, depths: Sequence[int], maps: Sequence[tuple[int, int, int]]) -> None:
        super().__init__()
        self.blocks, self.depths, self.maps = blocks.eval(), tuple(depths), tuple(maps)
        fold(self)
        self.requires_grad_(True)  # what was folded into biases too

    def extra_repr(self) -> str:
        """Name what no weight tells, for caches."""
        return f"depths={self.depths}, maps={self.maps}"

    def forward(self, rows: Tensor) -> Tensor:
        """Compute the features of all rows."""
        features = []
        for depth, maps in zip(self.depths, self._maps(rows), strict=True):
            upper = self.blocks[:depth](maps.contiguous(memory_format=torch.channels_last))
            features.append(normalize(upper.reshape(len(rows), WAYS, -1).mean(1)))
        return torch.cat(features, dim=1)

    def varied(self, rows: Tensor, random: np.random.RandomState) -> Tensor:
        """Return rows of the same pictures seen a little differently, at all scales alike."""
        warps = draw_warps(len(rows), random).repeat_interleave(WAYS, dim=0)
        return torch.cat([warp(maps, warps).reshape(len(rows), -1) for maps in self._maps(rows)], dim=1)

    def _maps(self, rows: Tensor) -> list[Tensor]:
        """Return the maps of each scale, a sample's ways one after the other."""
        pieces = rows.split([WAYS * prod(shape) for shape in self.maps], dim=1)
        return [piece.reshape(-1, *shape) for shape, piece in zip(self.maps, pieces, strict=True)]
