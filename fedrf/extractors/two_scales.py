"""Small pictures at two scales, as they are and as negatives: strokes may be light on dark or dark on light."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fedrf.extractors.layers import fold

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
        pieces = rows.split([WAYS * prod(shape) for shape in self.maps], dim=1)
        for depth, shape, piece in zip(self.depths, self.maps, pieces, strict=True):
            maps = self.blocks[:depth](piece.reshape(-1, *shape).contiguous(memory_format=torch.channels_last))
            features.append(normalize(maps.reshape(len(rows), WAYS, -1).mean(1)))
        return torch.cat(features, dim=1)
