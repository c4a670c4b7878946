"""Layers that the extractors share."""

from __future__ import annotations

from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """x + W₂ relu(W₁x + b₁) + b₂, with W₂ = 0 and b₂ = 0 at first: training starts from the identity."""

    def __init__(self, size: int, hidden: int = 128) -> None:
        super().__init__()
        self.inner = nn.Linear(size, hidden)
        self.outer = nn.Linear(hidden, size)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Add the correction to `x`."""
        corrected: Tensor = x + self.outer(self.inner(x).relu())
        return corrected
