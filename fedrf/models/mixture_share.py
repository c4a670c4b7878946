"""A learned share of a domain's own statistics in those that normalise its features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

INITIAL = 2.0  # α = 0.94: at first domains are normalised almost separately


class MixtureShare(nn.Module):
    """α, kept between 1/2 and 1 by a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.tensor([INITIAL]))

    def share(self) -> Tensor:
        """Return α."""
        return 0.5 + 0.5 * self.raw.sigmoid()
