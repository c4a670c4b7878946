"""Functions that build the extractors that come with fedrf."""

from __future__ import annotations

from torch import nn

from fedrf.config.registry import EXTRACTORS
from fedrf.config.schema import WEIGHTS
from fedrf.models.extractors import BUILT_IN, Shape
from fedrf.models.extractors.cnn import small_cnn
from fedrf.models.extractors.efficientnet import efficientnet_lite0
from fedrf.models.extractors.extractor import Extractor
from fedrf.models.extractors.gradients import OrientedGradients
from fedrf.models.extractors.layers import Pixels, ResidualBlock
from fedrf.models.extractors.mlp import small_mlp
from fedrf.models.extractors.preparation import Preparation
from fedrf.models.extractors.resnet import resnet

# For image files, if the extractor has no size of its own.
SMALL = Preparation(resize=32, crop=32)


def make_extractor(name: str, shape: Shape | None, weights: str = "pretrained") -> Extractor:
    """Return a new extractor; weights that are not pretrained are drawn from PyTorch's global generator.

    Parameters
    ----------
    name
        ``gradients``: histograms of oriented gradients and a residual block; for images.
        ``cnn``: a small convolutional network, trained from scratch; for images.
        ``mlp``: a small multilayer perceptron, trained from scratch; for images or features.
        ``identity``: given features and a residual block.
        ``efficientnet-lite0``: 1,280 features of a network for photographs, and a residual block;
        ``efficientnet-lite0-plus`` those of image and mirror image, and logits of the 1,000 ImageNet classes;
        ``efficientnet-lite0-small`` 2,720 features of small images and their negatives, from its first blocks.
        ``resnet18``, ``resnet50``, ``resnet101``: networks of torchvision, whose fourth stage can be trained.
    shape
        Of one sample in memory: (channels, height, width) of an image, (p,) of a row of features.
        None: image files of any size.
    weights
        Of the last six: ``pretrained`` on ImageNet; ``none``: random; or a file, ``.pth`` or ``.safetensors``.
    """
    definition = EXTRACTORS.find(name)
    if not definition.has_weights and weights not in WEIGHTS:
        raise ValueError(f"model.weights={weights}: extractor {name!r} has no weights to load; leave it at pretrained")
    extractor = definition.build(None if shape is None else tuple(shape), weights)
    if not isinstance(extractor, Extractor):
        raise ValueError(f"model.extractor={name}: returned {type(extractor).__name__}, which is not an Extractor")
    return extractor


def _image_channels(name: str, shape: Shape, smallest: int) -> int:
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < smallest:
        raise ValueError(
            f"extractor {name!r} needs images (channels, height, width) of at least {smallest} × {smallest} pixels; "
            f"got samples of shape {shape}"
        )
    return shape[0]


def _prepared(shape: Shape | None) -> tuple[Shape, Preparation | None]:
    return ((3, SMALL.crop, SMALL.crop), SMALL) if shape is None else (shape, None)


def build_gradients(shape: Shape | None, _: str) -> Extractor:
    """Return histograms of oriented gradients with a residual block."""
    (shape, prepare), histograms = _prepared(shape), OrientedGradients()
    _image_channels("gradients", shape, max(histograms.grids))
    size = histograms.out_features
    return Extractor(nn.Sequential(Pixels(), histograms), ResidualBlock(size), size, prepare)


def build_cnn(shape: Shape | None, _: str) -> Extractor:
    """Return a small convolutional network."""
    shape, prepare = _prepared(shape)
    channels, out_features = _image_channels("cnn", shape, 4), 128
    return Extractor(nn.Identity(), small_cnn(channels, out_features), out_features, prepare)


def build_mlp(shape: Shape | None, _: str) -> Extractor:
    """Return a small multilayer perceptron."""
    (shape, prepare), out_features = _prepared(shape), 128
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise ValueError(f"extractor 'mlp' needs images or rows of features; got samples of shape {shape}")
    return Extractor(nn.Identity(), small_mlp(shape, out_features), out_features, prepare)


def build_identity(shape: Shape | None, _: str) -> Extractor:
    """Return a residual block on given features."""
    if shape is None:
        images = ", ".join(name for name in BUILT_IN if name != "identity")
        raise ValueError(f"extractor 'identity' is for features: image files need one of {images}")
    if len(shape) != 1 or shape[0] < 1:
        raise ValueError(f"extractor 'identity' needs samples that are rows of features; got samples of shape {shape}")
    return Extractor(nn.Identity(), ResidualBlock(shape[0]), shape[0])


def build_backbone(name: str, shape: Shape | None, weights: str) -> Extractor:
    """Return a network that was trained on ImageNet."""
    if shape is not None:
        _image_channels(name, shape, 1)
    layers = resnet if name.startswith("resnet") else efficientnet_lite0
    return Extractor(*layers(name, weights))
