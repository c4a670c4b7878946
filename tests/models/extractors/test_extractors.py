"""Extractors by name: shapes, trained parts, and errors."""

import subprocess
import sys

import pytest
import torch

from fedrf.config.registry import EXTRACTORS
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.extractors.extractor import Extractor
from fedrf.models.extractors.layers import Pixels, ResidualBlock
from fedrf.models.extractors.preparation import Preparation

# Extractors without a backbone.
SHAPES = {"gradients": (1, 16, 16), "cnn": (1, 16, 16), "mlp": (1, 16, 16), "identity": (24,)}


def samples(name, count=5):
    return torch.rand(count, *SHAPES[name], generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", SHAPES)
def test_the_trunk_is_fixed_and_the_adapter_is_trained(name):
    extractor = make_extractor(name, SHAPES[name])
    assert isinstance(extractor, Extractor)
    assert not list(extractor.trunk.parameters())
    extractor(samples(name)).square().sum().backward()
    trained = list(extractor.adapter.parameters())
    assert trained
    assert all(weight.requires_grad and weight.grad is not None for weight in trained)


@pytest.mark.parametrize("name", SHAPES)
def test_out_features_is_the_width_of_the_output(name):
    extractor = make_extractor(name, SHAPES[name])
    assert extractor(samples(name)).shape == (5, extractor.out_features)


@pytest.mark.parametrize("name", SHAPES)
def test_samples_do_not_influence_each_other(name):
    extractor, x = make_extractor(name, SHAPES[name]), samples(name)
    torch.testing.assert_close(extractor(x)[2:3], extractor(x[2:3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SHAPES)
def test_weights_depend_on_the_global_seed_only(name):
    def weights(seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            state = make_extractor(name, SHAPES[name]).state_dict()
        return torch.cat([value.flatten() for value in state.values()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


@pytest.mark.parametrize("name", ["gradients", "identity"])
def test_the_adapter_starts_as_the_identity_and_can_be_trained(name):
    extractor, x = make_extractor(name, SHAPES[name]), samples(name)
    features = extractor.trunk(x)
    assert torch.equal(extractor(x), features)
    optimizer = torch.optim.SGD(extractor.adapter.parameters(), 0.1)
    extractor(x).sum().backward()
    optimizer.step()
    assert not torch.equal(extractor(x), features)


def test_residual_block_by_hand():
    block = ResidualBlock(2, hidden=3)
    with torch.no_grad():
        block.inner.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
        block.inner.bias.zero_()
        block.outer.weight.copy_(torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 3.0]]))
    x = torch.tensor([[1.0, 1.0], [-2.0, 1.0]])
    torch.testing.assert_close(block(x), torch.tensor([[3.0, 1.0], [-2.0, 4.0]]))


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 28, 28), (3, 9, 17)])
@pytest.mark.parametrize("name", ["gradients", "cnn"])
def test_images_of_other_sizes_and_colours(name, shape):
    extractor = make_extractor(name, shape)
    width = make_extractor(name, (1, 16, 16)).out_features
    assert extractor(torch.rand(2, *shape)).shape == (2, width)


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_extractors_trained_from_scratch_have_128_features(name):
    assert make_extractor(name, (1, 16, 16)).out_features == 128


@pytest.mark.parametrize("shape", [(7,), (1, 1, 1), (3, 5, 9)])
def test_mlp_takes_images_and_features(shape):
    assert make_extractor("mlp", shape)(torch.rand(2, *shape)).shape == (2, 128)


@pytest.mark.parametrize("name", SHAPES)
def test_training_mode_changes_no_output(name):
    extractor, x = make_extractor(name, SHAPES[name]), samples(name)
    assert torch.equal(extractor.eval()(x), extractor.train()(x))


@pytest.mark.parametrize("name", ["gradients", "cnn", "mlp"])
def test_bytes_are_pixels_from_0_to_1(name):
    extractor = make_extractor(name, (3, 16, 16))
    images = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(extractor(images), extractor(images.float() / 255))


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_bytes_stay_bytes_if_the_trunk_is_empty(name):
    images = torch.zeros(1, 1, 16, 16, dtype=torch.uint8)
    assert make_extractor(name, (1, 16, 16)).trunk(images).dtype == torch.uint8


def test_pixels_leave_floats_unchanged():
    x = torch.tensor([-1.0, 0.5, 300.0], dtype=torch.float64)
    assert Pixels()(x) is x
    assert Pixels()(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])


@pytest.mark.parametrize("name", ["gradients", "cnn", "mlp"])
def test_image_files_become_small_colour_images(name):
    extractor = make_extractor(name, None)
    assert extractor.prepare == Preparation(resize=32, crop=32)
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    assert extractor(images).shape == (2, extractor.out_features)


@pytest.mark.parametrize("name", SHAPES)
def test_arrays_need_no_preparation(name):
    assert make_extractor(name, SHAPES[name]).prepare is None


def test_identity_is_not_for_image_files():
    with pytest.raises(
        ValueError, match=r"image files need one of gradients, cnn, mlp, efficientnet-lite0, .*resnet101$"
    ):
        make_extractor("identity", None)


@pytest.mark.parametrize("name", SHAPES)
def test_the_frozen_extractor_has_the_same_output(name):
    extractor, x = make_extractor(name, SHAPES[name]), samples(name)
    assert torch.equal(extractor.frozen_layers()(x), extractor(x))
    assert (extractor.frozen_layers() is extractor.trunk) == (name in ("gradients", "identity"))


@pytest.mark.parametrize("parameter", ["weight", "bias"])
def test_a_trained_block_is_part_of_the_frozen_extractor(parameter):
    extractor, x = make_extractor("identity", (24,)), samples("identity")
    torch.nn.init.ones_(getattr(extractor.adapter.outer, parameter))
    assert not torch.equal(extractor(x), x)
    assert torch.equal(extractor.frozen_layers()(x), extractor(x))


@pytest.mark.parametrize("name", SHAPES)
def test_only_backbones_have_weights_to_load(name):
    make_extractor(name, SHAPES[name], weights="none")
    with pytest.raises(ValueError, match=rf"^model.weights=some.pth: extractor '{name}' has no weights to load"):
        make_extractor(name, SHAPES[name], weights="some.pth")


def test_names_of_the_extractors():
    backbones = ["efficientnet-lite0", "efficientnet-lite0-plus", "efficientnet-lite0-small"]
    backbones += ["resnet18", "resnet50", "resnet101"]
    assert list(EXTRACTORS.built_in) == [*SHAPES, *backbones]


def test_the_error_for_an_unknown_name_lists_the_extractors():
    listed = r"^model\.extractor=resnet: allowed: gradients, cnn, mlp, identity, efficientnet-lite0, .*module:Name$"
    with pytest.raises(ValueError, match=listed):
        make_extractor("resnet", (3, 32, 32))


def test_libraries_of_backbones_are_imported_only_when_needed():
    module, libraries = "fedrf.models.extractors.builders", ("torchvision", "effic")
    script = f"import sys, {module}\nprint([name for name in sys.modules if name.startswith({libraries})])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gradients", (16,)),
        ("gradients", (1, 4, 16)),
        ("cnn", (16, 16)),
        ("cnn", (1, 2, 2)),
        ("mlp", (16, 16)),
        ("mlp", (1, 0, 2)),
        ("resnet50", (16,)),
        ("efficientnet-lite0", (16, 16)),
        ("efficientnet-lite0-small", (1, 0, 16)),
        ("identity", (1, 16, 16)),
        ("identity", (0,)),
    ],
)
def test_samples_of_a_wrong_shape_are_refused(name, shape):
    with pytest.raises(ValueError, match=f"extractor '{name}' needs .*; got samples of shape") as caught:
        make_extractor(name, shape)
    assert str(shape) in str(caught.value)
    assert "\n" not in str(caught.value)
