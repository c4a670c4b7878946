"""Layers that the extractors share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.fusion import fuse_conv_bn_eval


class ResidualBlock(nn.Module):
    """x + W₂ relu(W₁x + b₁) + b₂, with W₂ = 0 and b₂ = 0 at first: training starts from the identity."""

    def __init__(self, size: int, hidden: int = 128) -> None:
        super().__init__()
        self.inner = nn.Linear(size, hidden)
        self.outer = nn.Linear(hidden, size)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    @property
    def is_identity(self) -> bool:
        """Whether nothing was learned yet."""
        return not any(parameter.any() for parameter in self.outer.parameters())

    def forward(self, x: Tensor) -> Tensor:
        """Add the correction to `x`."""
        corrected: Tensor = x + self.outer(self.inner(x).relu())
        return corrected


class Pixels(nn.Module):
    """Bytes to numbers from 0 to 1; anything else stays as it is."""

    def forward(self, x: Tensor) -> Tensor:
        """Divide bytes by 255."""
        return x.float() / 255 if x.dtype == torch.uint8 else x


class Standardise(nn.Module):
    """(x − mean) / std of pixels from 0 to 255, for each colour or for all alike."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise, with the colours of a pixel side by side in memory."""
        return (x.to(torch.float32, memory_format=torch.channels_last) - self.mean) / self.std


class Mirror(nn.Module):
    """Turn images by 180°."""

    def forward(self, x: Tensor) -> Tensor:
        """Reverse rows and columns."""
        return x.flip(-2, -1)


class BothSides(nn.Sequential):
    """The mean of what the layers make of a picture and of its mirror image."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply all layers to both."""
        mean: Tensor = (super().forward(x) + super().forward(x.flip(-1))) / 2
        return mean


class WithClasses(nn.Module):
    """Features of norm 1, and beside them, `length` long, the roots of the probabilities of a trained classifier.

    What a picture is taken for changes less from one domain to the next than how it looks. The distance between roots
    is Hellinger's. Longer, they help more from far domains and hurt more from near ones.
    """

    def __init__(self, head: nn.Linear, length: float = 0.5) -> None:
        super().__init__()
        self.head, self.length = head, length

    def extra_repr(self) -> str:
        """Name what no weight tells, for caches."""
        return f"length={self.length}"

    def forward(self, x: Tensor) -> Tensor:
        """Append to each row what the classifier says of it."""
        return torch.cat([normalize(x), self.length * self.head(x).softmax(1).sqrt()], dim=1)


class FrozenTrunk(nn.Sequential):
    """Layers of a trained network that are never trained again.

    Normalisation becomes part of the convolution before it and the colours of a pixel lie side by side in memory, which
    together halves the time on a CPU. The output is contiguous, so that the adapter computes the same, bit for bit,
    whether it comes from here or from a file.
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.eval().requires_grad_(False)
        fold(self)
        self.to(memory_format=torch.channels_last)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply all layers."""
        features: Tensor = super().forward(x)
        return features.contiguous()


def fold(module: nn.Module) -> None:
    """Make each normalisation part of the convolution that is registered just before it."""
    layers: list[tuple[str, Any]] = list(module.named_children())
    for (before, convolution), (name, norm) in pairwise(layers):
        if isinstance(convolution, nn.Conv2d) and hasattr(norm, "running_var"):
            setattr(module, before, fuse_conv_bn_eval(convolution, norm))
            setattr(module, name, nn.Identity())
    for layer in module.children():
        fold(layer)
