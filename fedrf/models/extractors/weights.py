"""Weights of backbones: read from a file, compare with the network, load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

# Prefixes of the classifier's weights, which are not loaded: its classes are different ones.
HEADS = ("fc.", "_fc.", "classifier.")
MAX_LISTED = 3  # differences in an error message


def read_weights(file: str) -> dict[str, Tensor]:
    """Read a ``.safetensors`` file, or a file that `torch.load` can read without running code from it."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise ValueError(f"model.weights={file}: no such file; must be pretrained, none or a file of weights")
    try:
        state: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:  # of many types, with messages of several lines
        kind = type(error).__name__
        raise ValueError(f"model.weights={file}: cannot be read as a state_dict ({kind})") from error
    for key in ("state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping):
        raise ValueError(f"model.weights={file}: must contain a state_dict, not a {type(state).__name__}")
    return {str(name).removeprefix("module."): value for name, value in state.items() if isinstance(value, Tensor)}


def load_weights(network: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Load all weights except the classifier's into a network, which may be on the meta device."""
    expected, given = _body(network.state_dict()), _body(state)
    differences = [f"missing {name}" for name in expected if name not in given]
    differences += [f"unexpected {name}" for name in given if name not in expected]
    differences += [
        f"{name} is {tuple(given[name].shape)} instead of {tuple(value.shape)}"
        for name, value in expected.items()
        if name in given and given[name].shape != value.shape
    ]
    if differences:
        more = f" and {len(differences) - MAX_LISTED} more" if len(differences) > MAX_LISTED else ""
        listed = ", ".join(differences[:MAX_LISTED])
        raise ValueError(f"{source}: the weights do not fit the network: {listed}{more}")
    # Contiguous, because trained weights are sent as one vector.
    state = {name: value.float().contiguous() for name, value in given.items()}
    network.load_state_dict(state, strict=False, assign=True)


def load_head(state: Mapping[str, Tensor], name: str, size: int, source: str) -> nn.Linear:
    """Return the classifier of a trained network, with its own classes."""
    weight, bias = (state.get(f"{name}.{part}") for part in ("weight", "bias"))
    if weight is None or bias is None or weight.shape != (len(bias), size):
        raise ValueError(
            f"{source}: has no classifier {name} of {size:,} features; "
            "use model.extractor=efficientnet-lite0, which needs none"
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
