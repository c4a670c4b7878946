"""Residual networks of torchvision, split as in the paper: fixed up to the third stage, the fourth is learned."""

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
        As torchvision spells it.
    weights
        ``pretrained``, ``none`` or a file.
    """
    # Here and below: torchvision takes seconds to import.
    from torchvision.models import get_model, get_model_weights
    from torchvision.ops import FrozenBatchNorm2d

    published = get_model_weights(name).DEFAULT
    # Nothing about a client's data is kept outside the weights, and nobody's batch changes another's.
    with torch.device("cpu" if weights == "none" else "meta"):
        network: ResNet = get_model(name, weights=None, norm_layer=FrozenBatchNorm2d)
    if weights == "none":
        _bound(network)
    elif weights == "pretrained":
        load_weights(network, _download(name, published), f"extractor {name!r}")
    else:
        load_weights(network, read_weights(weights), f"model.weights={weights}")

    # Of the published weights, for others too: a file seldom says how its pictures were prepared.
    expects = published.transforms()
    trunk = FrozenTrunk(
        Standardise(*([255 * value for value in values] for values in (expects.mean, expects.std))),
        *(network.conv1, network.bn1, network.relu, network.maxpool),
        *(network.layer1, network.layer2, network.layer3),
    )
    adapter = nn.Sequential(network.layer4, network.avgpool, nn.Flatten())
    prepare = Preparation(expects.resize_size[0], expects.crop_size[0], expects.interpolation.value)
    return trunk, adapter, network.fc.in_features, prepare


def _bound(network: nn.Module) -> None:
    """Shrink what each block adds: with no statistics to normalise by, the variance would double in every block."""
    from torchvision.models.resnet import BasicBlock, Bottleneck

    blocks = [module for module in network.modules() if isinstance(module, BasicBlock | Bottleneck)]
    for block in blocks:
        norm = block.bn3 if isinstance(block, Bottleneck) else block.bn2
        norm.weight /= len(blocks) ** 0.5


def _download(name: str, published: Any) -> dict[str, Tensor]:
    """Let torchvision find its weights in its cache or in the internet."""
    try:
        state: dict[str, Tensor] = published.get_state_dict(
            progress=False, check_hash=True, map_location="cpu", weights_only=True
        )
    except Exception as error:  # of the network, the disk or the file
        raise ValueError(
            f"extractor {name!r}: torchvision has no weights here and could not download them ({reason(error)}): "
            "give a file as model.weights=PATH, or model.weights=none"
        ) from error
    return state
