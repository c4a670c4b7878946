"""Feature extractors G by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from fedrf.extractors.cnn import small_cnn
from fedrf.extractors.gradients import OrientedGradients
from fedrf.extractors.layers import ResidualBlock

__all__ = ["EXTRACTORS", "Extractor", "make_extractor"]


class Extractor(nn.Module):
    """G: a fixed `trunk`, computed once for each sample, and a learnable `adapter` on top of it."""

    def __init__(self, trunk: nn.Module, adapter: nn.Module, out_features: int) -> None:
        super().__init__()
        self.trunk, self.adapter, self.out_features = trunk, adapter, out_features

    def forward(self, x: Tensor) -> Tensor:
        """Map samples to features."""
        features: Tensor = self.adapter(self.trunk(x))
        return features


def _image_channels(name: str, shape: tuple[int, ...], smallest: int) -> int:
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < smallest:
        raise ValueError(
            f"extractor {name!r} needs images (channels, height, width) of at least {smallest} × {smallest} pixels; "
            f"got samples of shape {shape}"
        )
    return shape[0]


def _gradients(shape: tuple[int, ...]) -> Extractor:
    trunk = OrientedGradients()
    _image_channels("gradients", shape, max(trunk.grids))
    return Extractor(trunk, ResidualBlock(trunk.out_features), trunk.out_features)


def _cnn(shape: tuple[int, ...]) -> Extractor:
    channels, out_features = _image_channels("cnn", shape, 4), 128
    return Extractor(nn.Identity(), small_cnn(channels, out_features), out_features)


def _identity(shape: tuple[int, ...]) -> Extractor:
    if len(shape) != 1 or shape[0] < 1:
        raise ValueError(f"extractor 'identity' needs samples that are rows of features; got samples of shape {shape}")
    return Extractor(nn.Identity(), ResidualBlock(shape[0]), shape[0])


EXTRACTORS: dict[str, Callable[[tuple[int, ...]], Extractor]] = {
    "gradients": _gradients,
    "cnn": _cnn,
    "identity": _identity,
}


def make_extractor(name: str, shape: tuple[int, ...]) -> Extractor:
    """Return a new extractor for samples of `shape`, its weights drawn from PyTorch's global generator.

    Parameters
    ----------
    name
        ``gradients``: histograms of oriented gradients, with a residual block to adapt them; for images.
        ``cnn``: a small convolutional network, all of it learned; for images.
        ``identity``: ready-made features, with a residual block to adapt them.
    shape
        Of one sample: (channels, height, width) of an image, (p,) of a row of features.
    """
    if name not in EXTRACTORS:
        raise ValueError(f"extractor must be one of {', '.join(EXTRACTORS)}; got {name!r}")
    return EXTRACTORS[name](tuple(shape))
