"""Random affine transforms of feature maps: rotation, scaling, shear and translation, one transform per sample."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

# Largest values: radians, logarithm of the factor, shear, and translation, where 1 is half of the side.
TURN, SCALE, SHEAR, SHIFT = np.pi / 9, 0.2, 0.3, 0.2


def draw_warps(count: int, random: np.random.RandomState) -> Tensor:
    """Draw small affine transforms, (count, 2, 3)."""
    turn, scale, shear, across, down = random.uniform(-1, 1, (5, count)) * [[TURN], [SCALE], [SHEAR], [SHIFT], [SHIFT]]
    cos, sin = np.exp(scale) * np.cos(turn), np.exp(scale) * np.sin(turn)
    entries = [cos, shear - sin, across, sin, cos, down]
    return torch.from_numpy(np.stack(entries, axis=1).reshape(count, 2, 3)).float()


def warp(maps: Tensor, warps: Tensor) -> Tensor:
    """Transform maps (count, channels, height, width); outside of a map, its border values are repeated."""
    grid = affine_grid(warps.to(maps), list(maps.shape), align_corners=False)
    return grid_sample(maps, grid, padding_mode="border", align_corners=False)
