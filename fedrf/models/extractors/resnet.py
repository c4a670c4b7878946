"""Residual networks of torchvision, split as in the paper: the first three stages are fixed, the fourth is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fedrf.errors import reason
from fedrf.models.extractors.layers import FrozenTrunk, Standardise
from fedrf.models.extractors.preparation import Preparation
from fedrf.models.extractors.weights import load_weights, read_weights

if TYPE_CHECKING:
    from torchvision.models import ResNet


def resnet(name: str, weights: str) -> tuple[nn.Module, nn.Module, int, Preparation]:
    """Return the trunk, the adapter, the number of features and the preparation of a network.

    Parameters
    ----------
    name
        torchvision's name of the network.
    weights
        ``pretrained``, ``none`` (random) or a file.
    """
    # Imported here and below because torchvision takes seconds to import.
    from torchvision.models import get_model, get_model_weights
    from torchvision.ops import FrozenBatchNorm2d

    published = get_model_weights(name).DEFAULT
    # Frozen statistics: the only state is the weights, and samples of a batch do not influence each other.
    with torch.device("cpu" if weights == "none" else "meta"):
        network: ResNet = get_model(name, weights=None, norm_layer=FrozenBatchNorm2d)
    if weights == "none":
        _scale_residual_branches(network)
    elif weights == "pretrained":
        load_weights(network, _download(name, published), f"extractor {name!r}")
    else:
        load_weights(network, read_weights(weights), f"model.weights={weights}")

    # Also for weights from a file, which does not say how its images were prepared.
    transforms = published.transforms()
    trunk = FrozenTrunk(
        Standardise(*([255 * value for value in values] for values in (transforms.mean, transforms.std))),
        *(network.conv1, network.bn1, network.relu, network.maxpool),
        *(network.layer1, network.layer2, network.layer3),
    )
    adapter = nn.Sequential(network.layer4, network.avgpool, nn.Flatten())
    prepare = Preparation(transforms.resize_size[0], transforms.crop_size[0], transforms.interpolation.value)
    return trunk, adapter, network.fc.in_features, prepare


def _scale_residual_branches(network: nn.Module) -> None:
    """Scale the branches down: without batch statistics, the variance would double in every block."""
    from torchvision.models.resnet import BasicBlock, Bottleneck

    blocks = [module for module in network.modules() if isinstance(module, BasicBlock | Bottleneck)]
    for block in blocks:
        norm = block.bn3 if isinstance(block, Bottleneck) else block.bn2
        norm.weight /= len(blocks) ** 0.5


def _download(name: str, published: Any) -> dict[str, Tensor]:
    """Return torchvision's weights, from its cache or from the internet."""
    try:
        state: dict[str, Tensor] = published.get_state_dict(
            progress=False, check_hash=True, map_location="cpu", weights_only=True
        )
    except Exception as error:  # network, disk or file errors of several types
        raise ValueError(
            f"extractor {name!r}: torchvision has no cached weights and could not download them ({reason(error)}); "
            "set model.weights=PATH, or model.weights=none"
        ) from error
    return state
