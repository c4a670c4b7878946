"""Residual networks compared with torchvision's, and which parts are trained."""

from urllib.error import URLError

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from fedrf.models.extractors.builders import make_extractor
from tests.models.extractors.images import noisy_patches


@torch.no_grad()
def test_resnet_from_a_file_equals_torchvisions(resnet18):
    file, network = resnet18
    extractor = make_extractor("resnet18", None, weights=str(file))
    x = noisy_patches(2, 224)
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    expected = network((x / 255 - mean) / std)
    torch.testing.assert_close(extractor(x), expected, rtol=1e-4, atol=1e-4)
    assert extractor.trunk(x).shape == (2, 256, 14, 14)
    assert extractor.out_features == 512


def test_weights_in_torchvisions_cache_are_used(resnet18, tmp_path, monkeypatch):
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "resnet18-f37072fd.pth").symlink_to(resnet18[0])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    states = [
        make_extractor("resnet18", (3, 8, 8), weights).state_dict() for weights in ("pretrained", str(resnet18[0]))
    ]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_without_internet_and_cache_the_error_says_what_to_set(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise URLError("Name or service\nnot known")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.urlopen", fail)
    with pytest.raises(
        ValueError, match=r"^extractor 'resnet50': .*model.weights=PATH, or model.weights=none$"
    ) as caught:
        make_extractor("resnet50", None)
    assert "Name or service" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_fourth_stage_is_trained(resnet18):
    extractor, x = make_extractor("resnet18", None, str(resnet18[0])), noisy_patches(2, 64)
    assert not any(parameter.requires_grad for parameter in extractor.trunk.parameters())
    extractor(x).square().sum().backward()
    trained = dict(extractor.adapter.named_parameters())
    assert all("conv" in name or "downsample" in name for name in trained)
    assert all(weight.grad.abs().sum() > 0 for weight in trained.values())
    # Numbers that a client sends.
    assert len(parameters_to_vector(trained.values())) == sum(
        value.numel() for name, value in resnet18[1].layer4.state_dict().items() if value.ndim == 4
    )
    assert torch.equal(extractor.frozen_layers()(x), extractor(x))


@torch.no_grad()
def test_trunk_outputs_are_contiguous(resnet18):
    trunk = make_extractor("resnet18", None, str(resnet18[0])).trunk
    assert trunk(noisy_patches(1, 64)).is_contiguous()
