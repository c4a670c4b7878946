"""The gradient reversal layer of adversarial training (Ganin et al. 2016)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class GradientReversal(torch.autograd.Function):
    """The identity, whose gradient is multiplied by −strength."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, strength: float) -> Tensor:
        """Return the rows."""
        ctx.strength = strength
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the reversed gradient."""
        return -ctx.strength * gradients[0], None
