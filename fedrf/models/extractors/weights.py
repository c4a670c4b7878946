"""Weights of backbones: read from a file, checked against the network, loaded into it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

# Of a classifier, whose classes are others here.
HEADS = ("fc.", "_fc.", "classifier.")
SHOWN = 3


def read_weights(file: str) -> dict[str, Tensor]:
    """Read ``.safetensors``, or whatever else `torch.load` can read without running code from the file."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise ValueError(f"model.weights={file}: there is no such file; give one, or one of pretrained, none")
    try:
        state: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:  # PyTorch and safetensors raise all kinds, with whole paragraphs
        kind = type(error).__name__
        raise ValueError(f"model.weights={file}: cannot be read as a state_dict, tensors by name ({kind})") from error
    for key in ("state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping):
        raise ValueError(f"model.weights={file}: is a {type(state).__name__} instead of a state_dict, tensors by name")
    return {str(name).removeprefix("module."): value for name, value in state.items() if isinstance(value, Tensor)}


def load_weights(network: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Put all weights but the classifier's into a network, which may be on the meta device."""
    expected, given = _body(network.state_dict()), _body(state)
    wrong = [f"missing {name}" for name in expected if name not in given]
    wrong += [f"unexpected {name}" for name in given if name not in expected]
    wrong += [
        f"{name} is {tuple(given[name].shape)} instead of {tuple(value.shape)}"
        for name, value in expected.items()
        if name in given and given[name].shape != value.shape
    ]
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise ValueError(f"{source}: other weights than the network's: {', '.join(wrong[:SHOWN])}{more}")
    # Contiguous, for what learns is sent as one vector.
    state = {name: value.float().contiguous() for name, value in given.items()}
    network.load_state_dict(state, strict=False, assign=True)


def load_head(state: Mapping[str, Tensor], name: str, size: int, source: str) -> nn.Linear:
    """Return the classifier that was trained with a network, whatever its classes."""
    weight, bias = (state.get(f"{name}.{part}") for part in ("weight", "bias"))
    if weight is None or bias is None or weight.shape != (len(bias), size):
        raise ValueError(
            f"{source}: has no classifier {name} of {size:,} features; model.extractor=efficientnet-lite0 needs none"
        )
    head = nn.Linear(size, len(bias))
    head.load_state_dict({"weight": weight.float(), "bias": bias.float()})
    return head


def _body(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: value
        for name, value in state.items()
        if not name.startswith(HEADS) and not name.endswith("num_batches_tracked")
    }
