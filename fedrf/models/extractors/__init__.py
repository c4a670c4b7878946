"""Feature extractors G by name."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

from torch import Tensor, nn

from fedrf.config.schema import WEIGHTS
from fedrf.models.extractors.cnn import small_cnn
from fedrf.models.extractors.efficientnet import efficientnet_lite0
from fedrf.models.extractors.gradients import OrientedGradients
from fedrf.models.extractors.layers import Pixels, ResidualBlock
from fedrf.models.extractors.mlp import small_mlp
from fedrf.models.extractors.preparation import Preparation
from fedrf.models.extractors.resnet import resnet

__all__ = ["BACKBONES", "EXTRACTORS", "Extractor", "Preparation", "make_extractor"]

Shape = tuple[int, ...]

# For files of pictures, where the extractor has no size of its own.
SMALL = Preparation(resize=32, crop=32)


class Extractor(nn.Module):
    """G: how pictures are prepared, a fixed `trunk`, computed once for each sample, and a learnable `adapter` on top.

    Parameters
    ----------
    prepare
        From a picture to the bytes that the trunk takes. None: samples are used as they are.
    """

    def __init__(
        self, trunk: nn.Module, adapter: nn.Module, out_features: int, prepare: Preparation | None = None
    ) -> None:
        super().__init__()
        self.trunk, self.adapter, self.out_features, self.prepare = trunk, adapter, out_features, prepare

    def forward(self, x: Tensor) -> Tensor:
        """Map samples to features."""
        features: Tensor = self.adapter(self.trunk(x))
        return features

    def settled(self) -> nn.Module:
        """Return what is computed once for each sample where the adapter is not trained either."""
        if isinstance(self.adapter, ResidualBlock) and self.adapter.is_identity:
            return self.trunk
        return nn.Sequential(self.trunk, deepcopy(self.adapter))  # of which the target may train its own later


def _image_channels(name: str, shape: Shape, smallest: int) -> int:
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < smallest:
        raise ValueError(
            f"extractor {name!r} needs images (channels, height, width) of at least {smallest} × {smallest} pixels; "
            f"got samples of shape {shape}"
        )
    return shape[0]


def _prepared(shape: Shape | None) -> tuple[Shape, Preparation | None]:
    return ((3, SMALL.crop, SMALL.crop), SMALL) if shape is None else (shape, None)


def _gradients(shape: Shape | None, _: str) -> Extractor:
    (shape, prepare), histograms = _prepared(shape), OrientedGradients()
    _image_channels("gradients", shape, max(histograms.grids))
    size = histograms.out_features
    return Extractor(nn.Sequential(Pixels(), histograms), ResidualBlock(size), size, prepare)


def _cnn(shape: Shape | None, _: str) -> Extractor:
    shape, prepare = _prepared(shape)
    channels, out_features = _image_channels("cnn", shape, 4), 128
    return Extractor(nn.Identity(), small_cnn(channels, out_features), out_features, prepare)


def _mlp(shape: Shape | None, _: str) -> Extractor:
    (shape, prepare), out_features = _prepared(shape), 128
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise ValueError(f"extractor 'mlp' needs images or rows of features; got samples of shape {shape}")
    return Extractor(nn.Identity(), small_mlp(shape, out_features), out_features, prepare)


def _identity(shape: Shape | None, _: str) -> Extractor:
    if shape is None:
        images = ", ".join(name for name in EXTRACTORS if name != "identity")
        raise ValueError(f"extractor 'identity' is for features: image files need one of {images}")
    if len(shape) != 1 or shape[0] < 1:
        raise ValueError(f"extractor 'identity' needs samples that are rows of features; got samples of shape {shape}")
    return Extractor(nn.Identity(), ResidualBlock(shape[0]), shape[0])


def _backbone(name: str, shape: Shape | None, weights: str) -> Extractor:
    if shape is not None:
        _image_channels(name, shape, 1)
    return Extractor(*BACKBONES[name](name, weights))


BACKBONES: dict[str, Callable[[str, str], tuple[nn.Module, nn.Module, int, Preparation]]] = {
    "efficientnet-lite0": efficientnet_lite0,
    "efficientnet-lite0-plus": efficientnet_lite0,
    "efficientnet-lite0-small": efficientnet_lite0,
    "resnet18": resnet,
    "resnet50": resnet,
    "resnet101": resnet,
}
EXTRACTORS: dict[str, Callable[[Shape | None, str], Extractor]] = {
    "gradients": _gradients,
    "cnn": _cnn,
    "mlp": _mlp,
    "identity": _identity,
    **{name: partial(_backbone, name) for name in BACKBONES},
}


def make_extractor(name: str, shape: Shape | None, weights: str = "pretrained") -> Extractor:
    """Return a new extractor, what is not pretrained of it drawn from PyTorch's global generator.

    Parameters
    ----------
    name
        ``gradients``: histograms of oriented gradients, with a residual block to adapt them; for images.
        ``cnn``: a small convolutional network, all of it learned; for images.
        ``mlp``: a small multilayer perceptron, all of it learned; for images or features.
        ``identity``: ready-made features, with a residual block to adapt them.
        ``efficientnet-lite0``: 1,280 features of a network for photographs, with a residual block to adapt them;
        ``efficientnet-lite0-plus`` those of picture and mirror image, and the 1,000 classes that it was trained for;
        ``efficientnet-lite0-small`` 2,720 features of small pictures and their negatives, from its first blocks.
        ``resnet18``, ``resnet50``, ``resnet101``: torchvision's, the fourth stage is learned.
    shape
        Of one sample in memory: (channels, height, width) of an image, (p,) of a row of features.
        None: files of pictures of any size.
    weights
        Of the last six: ``pretrained``, on ImageNet; ``none``: drawn; or a file of weights, ``.pth`` or
        ``.safetensors``.
    """
    if name not in EXTRACTORS:
        raise ValueError(f"extractor must be one of {', '.join(EXTRACTORS)}; got {name!r}")
    if name not in BACKBONES and weights not in WEIGHTS:
        raise ValueError(f"model.weights={weights}: extractor {name!r} has no weights to load; leave it at pretrained")
    return EXTRACTORS[name](None if shape is None else tuple(shape), weights)
