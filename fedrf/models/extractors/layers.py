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
    """x + W₂ relu(W₁x + b₁) + b₂, where W₂ and b₂ start at 0: training starts from the identity."""

    def __init__(self, size: int, hidden: int = 128) -> None:
        super().__init__()
        self.inner = nn.Linear(size, hidden)
        self.outer = nn.Linear(hidden, size)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    @property
    def is_identity(self) -> bool:
        """Whether the block maps every input to itself."""
        return not any(parameter.any() for parameter in self.outer.parameters())

    def forward(self, x: Tensor) -> Tensor:
        """Add the correction to `x`."""
        corrected: Tensor = x + self.outer(self.inner(x).relu())
        return corrected


class Pixels(nn.Module):
    """Maps bytes to numbers from 0 to 1; leaves other types unchanged."""

    def forward(self, x: Tensor) -> Tensor:
        """Divide bytes by 255."""
        return x.float() / 255 if x.dtype == torch.uint8 else x


class Standardise(nn.Module):
    """(x − mean) / std of pixels from 0 to 255, with one value for each colour channel or one for all."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise, in channels-last memory format."""
        return (x.to(torch.float32, memory_format=torch.channels_last) - self.mean) / self.std


class Mirror(nn.Module):
    """Rotates images by 180°."""

    def forward(self, x: Tensor) -> Tensor:
        """Flip rows and columns."""
        return x.flip(-2, -1)


class BothSides(nn.Sequential):
    """Averages the outputs of the layers for an image and for its mirror image."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply all layers to both images."""
        mean: Tensor = (super().forward(x) + super().forward(x.flip(-1))) / 2
        return mean


class WithClasses(nn.Module):
    """Concatenates features of norm 1 with the square roots of a trained classifier's probabilities.

    Predicted classes differ less between domains than features do. The distance between square roots of probabilities
    is the Hellinger distance.

    Parameters
    ----------
    head
        The classifier.
    length
        Norm of the square roots. Larger values help between distant domains and hurt between close ones.
    """

    def __init__(self, head: nn.Linear, length: float = 0.5) -> None:
        super().__init__()
        self.head, self.length = head, length

    def extra_repr(self) -> str:
        """Return settings that are in no weight but change the output; cache keys contain them."""
        return f"length={self.length}"

    def forward(self, x: Tensor) -> Tensor:
        """Append the classifier's output to each row."""
        return torch.cat([normalize(x), self.length * self.head(x).softmax(1).sqrt()], dim=1)


class FrozenTrunk(nn.Sequential):
    """Layers of a trained network that stay fixed.

    Batch normalisation is folded into convolutions and the memory format is channels-last, which together halve the
    time on a CPU. The output is contiguous, so that the adapter's result is bitwise the same for outputs computed here
    and for outputs from the cache.
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
    """Fold each batch normalisation into the convolution that is registered just before it."""
    layers: list[tuple[str, Any]] = list(module.named_children())
    for (convolution_name, convolution), (norm_name, norm) in pairwise(layers):
        if isinstance(convolution, nn.Conv2d) and hasattr(norm, "running_var"):
            setattr(module, convolution_name, fuse_conv_bn_eval(convolution, norm))
            setattr(module, norm_name, nn.Identity())
    for layer in module.children():
        fold(layer)
