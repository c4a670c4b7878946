"""Weights from files: formats, and errors that name the difference."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedrf.models.extractors.weights import load_weights, read_weights


class Network(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.norm = nn.BatchNorm2d(5)
        self.fc = nn.Linear(5, classes)


@pytest.fixture
def state():
    return {name: torch.rand(value.shape) for name, value in Network().state_dict().items()}


def load(state, file="file.pth"):
    with torch.device("meta"):
        network = Network()
    load_weights(network, state, f"model.weights={file}")
    return network


def is_loaded(network, state):
    return torch.equal(network.conv.weight, state["conv.weight"]) and torch.equal(
        network.norm.running_var, state["norm.running_var"]
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "optimizer": {"lr": 0.1}},
        lambda state: {f"module.{name}": value for name, value in state.items()},
        lambda state: {"state_dict": {f"module.{name}": value for name, value in state.items()}},
    ],
    ids=["plain", "state_dict", "model", "module", "both"],
)
def test_checkpoint_layouts(wrap, state, tmp_path):
    file = str(tmp_path / "weights.pth")
    torch.save(wrap(state), file)
    assert is_loaded(load(read_weights(file)), state)


def test_safetensors(state, tmp_path):
    file = str(tmp_path / "weights.safetensors")
    save_file(state, file)
    assert is_loaded(load(read_weights(file)), state)


def test_half_precision_becomes_single_precision(state):
    halves = {name: value.half() for name, value in state.items()}
    network = load(halves)
    assert network.conv.weight.dtype == torch.float32
    assert torch.equal(network.conv.weight, halves["conv.weight"].float())


def test_the_classifiers_weights_are_ignored(state):
    others = {"fc.weight": torch.rand(7, 7), "_fc.bias": torch.rand(3), "classifier.1.weight": torch.rand(2)}
    body = {name: value for name, value in state.items() if not name.startswith("fc.")}
    for given in (body, body | others):
        assert is_loaded(load(given), state)


def test_num_batches_tracked_is_ignored(state):
    del state["norm.num_batches_tracked"]
    assert is_loaded(load(state), state)


def test_the_error_names_differing_weights(state):
    wrong = state | {"conv.weight": torch.rand(5, 3, 1, 1), "layer9.weight": torch.rand(1)}
    del wrong["norm.bias"]
    with pytest.raises(ValueError, match=r"^model.weights=file.pth: ") as caught:
        load(wrong)
    message = str(caught.value)
    assert "missing norm.bias, unexpected layer9.weight, conv.weight is (5, 3, 1, 1) instead of (5, 3, 3, 3)" in message
    assert "\n" not in message


def test_the_error_names_at_most_three_weights():
    with pytest.raises(ValueError, match=r"missing conv.weight, missing conv.bias, missing norm.weight and 3 more$"):
        load({})


def test_unreadable_files_are_refused(tmp_path):
    contents = {"text.pth": b"hello", "empty.pt": b"", "text.safetensors": b"hello"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    torch.save(nn.Linear(2, 2), tmp_path / "module.pth")
    torch.save([torch.rand(2)], tmp_path / "list.pth")
    for name in (*contents, "module.pth", "list.pth", "missing.pth", "."):
        file = str(tmp_path / name)
        with pytest.raises(ValueError, match=r"no such file|state_dict") as caught:
            read_weights(file)
        assert str(caught.value).startswith(f"model.weights={file}: ")
        assert "\n" not in str(caught.value)
