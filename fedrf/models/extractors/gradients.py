"""Histograms of oriented gradients: a fixed trunk for small images, without trained weights."""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor, nn

# Relative to the mean gradient of the image; keeps the histograms of blank cells near zero.
NORM_FLOOR = 0.1


class OrientedGradients(nn.Module):
    """Maps images (n, c, h, w) to histograms of gradient orientations in square cells, at several scales.

    The orientation is unsigned: an image and its negative have the same histograms. They are invariant to brightness
    and contrast.

    Parameters
    ----------
    grids
        Number of cells along each side, for each scale.
    bins
        Number of orientations from 0 to π; a gradient votes for the two nearest ones.
    """

    def __init__(self, grids: tuple[int, ...] = (4, 6), bins: int = 8) -> None:
        super().__init__()
        self.grids, self.bins = grids, bins
        self.out_features = bins * sum(grid * grid for grid in grids)

    def forward(self, x: Tensor) -> Tensor:
        """Return one row of histograms for each image."""
        padded = nn.functional.pad(x, (1, 1, 1, 1), mode="replicate")
        right = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
        down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
        # At each pixel, the colour channel with the largest gradient is used.
        size, channel = (right.square() + down.square()).max(dim=1, keepdim=True)
        right, down, size = right.gather(1, channel), down.gather(1, channel), size.sqrt()
        mean = size.mean(dim=(1, 2, 3), keepdim=True)
        size = size / torch.where(mean > 0, mean, 1)
        position = torch.atan2(down, right) * (self.bins / pi)
        centres = torch.arange(self.bins, dtype=x.dtype, device=x.device).reshape(1, -1, 1, 1)
        distance = (position - centres).remainder(self.bins)
        votes = size * (1 - torch.minimum(distance, self.bins - distance)).clamp(min=0)
        return torch.cat([self._cells(votes, grid) for grid in self.grids], dim=1)

    def _cells(self, votes: Tensor, grid: int) -> Tensor:
        """Average the votes in each cell and divide by the norm of the cells around it."""
        cells = nn.functional.adaptive_avg_pool2d(votes, grid)
        energy = cells.square().sum(dim=1, keepdim=True)
        around = nn.functional.avg_pool2d(energy, 3, stride=1, padding=1, count_include_pad=False)
        return (cells / (around + NORM_FLOOR**2).sqrt()).flatten(1)
