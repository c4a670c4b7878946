"""The same pictures seen a little differently: turned, scaled, sheared and shifted maps, each sample its own way."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

TURN, SCALE, SHEAR, SHIFT = np.pi / 9, 0.2, 0.3, 0.2  # at most; a shift of 1 is half of the side


def draw_warps(count: int, random: np.random.RandomState) -> Tensor:
    """Return maps of the plane, (count, 2, 3), small and at random."""
    turn, scale, shear, across, down = random.uniform(-1, 1, (5, count)) * [[TURN], [SCALE], [SHEAR], [SHIFT], [SHIFT]]
    cos, sin = np.exp(scale) * np.cos(turn), np.exp(scale) * np.sin(turn)
    rows = [cos, shear - sin, across, sin, cos, down]
    return torch.from_numpy(np.stack(rows, axis=1).reshape(count, 2, 3)).float()


def warp(maps: Tensor, warps: Tensor) -> Tensor:
    """Move what is seen on (count, channels, height, width); what comes in from outside is what is at the border."""
    grid = affine_grid(warps.to(maps), list(maps.shape), align_corners=False)
    return grid_sample(maps, grid, padding_mode="border", align_corners=False)
