import math
import subprocess
import sys

import pytest
import torch
from sklearn.datasets import load_digits

from fedrf.models.extractors import EXTRACTORS, Extractor, make_extractor
from fedrf.models.extractors.gradients import OrientedGradients
from fedrf.models.extractors.layers import Pixels, ResidualBlock
from fedrf.models.extractors.preparation import Preparation

# Those without a backbone; test_backbones.py has the others.
SHAPES = {"gradients": (1, 16, 16), "cnn": (1, 16, 16), "mlp": (1, 16, 16), "identity": (24,)}


def samples(name, count=5):
    return torch.rand(count, *SHAPES[name], generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def images():
    handwritten = torch.from_numpy(load_digits().images[:20, None] / 16).float()
    return torch.nn.functional.interpolate(handwritten, size=(16, 16), mode="bilinear")


@pytest.mark.parametrize("name", SHAPES)
def test_trunk_is_fixed_adapter_is_learned(name):
    extractor = make_extractor(name, SHAPES[name])
    assert isinstance(extractor, Extractor)
    assert not list(extractor.trunk.parameters())
    extractor(samples(name)).square().sum().backward()
    learned = list(extractor.adapter.parameters())
    assert learned
    assert all(weight.requires_grad and weight.grad is not None for weight in learned)


@pytest.mark.parametrize("name", SHAPES)
def test_out_features_is_the_width_of_the_output(name):
    extractor = make_extractor(name, SHAPES[name])
    assert extractor(samples(name)).shape == (5, extractor.out_features)


@pytest.mark.parametrize("name", SHAPES)
def test_each_sample_is_mapped_on_its_own(name):
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
def test_adapter_starts_as_the_identity_and_can_leave_it(name):
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


def test_histograms_ignore_brightness_contrast_and_polarity(images):
    trunk = OrientedGradients()
    plain = trunk(images)
    for changed in (images + 0.3, 0.01 * images, 1 - images):
        torch.testing.assert_close(trunk(changed), plain, rtol=1e-3, atol=1e-3)


def test_histograms_see_where_strokes_are(images):
    trunk = OrientedGradients()
    plain = trunk(images)
    for changed in (images.flip(3), images.transpose(2, 3), images.roll(4, dims=3)):
        assert (trunk(changed) - plain).norm() > 0.2 * plain.norm()


def test_a_flat_image_has_no_gradients():
    assert torch.equal(
        OrientedGradients()(torch.full((2, 3, 16, 16), 0.7)), torch.zeros(2, OrientedGradients().out_features)
    )


@pytest.mark.parametrize(
    ("angle", "shares"), [(0, {0: 1.0}), (45, {2: 1.0}), (90, {4: 1.0}), (101.25, {4: 0.5, 5: 0.5})]
)
def test_a_ramp_votes_for_its_own_direction(angle, shares):
    down, right = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    ramp = math.cos(math.radians(angle)) * right + math.sin(math.radians(angle)) * down
    # The inner of 4 × 4 cells: the border has gradients of its own.
    cell = OrientedGradients(grids=(4,), bins=8)(ramp[None, None]).reshape(8, 4, 4)[:, 1, 1]
    expected = torch.tensor([shares.get(index, 0.0) for index in range(8)])
    torch.testing.assert_close(cell / cell.sum(), expected, rtol=0, atol=1e-4)


def test_shifting_by_a_whole_cell_shifts_the_histograms():
    trunk = OrientedGradients(grids=(4,), bins=8)
    image = torch.zeros(1, 1, 16, 16)
    image[..., 5:8, 5:7] = 1
    first, second = (trunk(x).reshape(8, 4, 4) for x in (image, image.roll(4, dims=3)))
    torch.testing.assert_close(first[:, 1, 1], second[:, 1, 2])
    assert first[:, 1, 1].norm() > 0.5
    assert second[:, 1, 1].norm() < 1e-6


def test_strong_strokes_dim_the_cells_around_them_only():
    image = torch.zeros(1, 1, 16, 16)
    for top, left, ink in ((1, 1, 1.0), (1, 5, 0.3), (9, 9, 0.3)):
        image[..., top : top + 2, left : left + 2] = ink
    strength = OrientedGradients(grids=(4,))(image).reshape(8, 4, 4).norm(dim=0)
    assert strength[0, 1] < 0.7 * strength[2, 2]


def test_the_colour_that_changes_most_speaks():
    strong, weak = torch.rand(2, 4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    trunk = OrientedGradients()
    together = trunk(torch.cat([0.001 * weak, strong, 0.001 * weak], dim=1))
    torch.testing.assert_close(together, trunk(strong), rtol=0, atol=0.01)
    assert (trunk(weak) - together).abs().max() > 0.5


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 28, 28), (3, 9, 17)])
@pytest.mark.parametrize("name", ["gradients", "cnn"])
def test_images_of_other_sizes_and_colours(name, shape):
    extractor = make_extractor(name, shape)
    width = make_extractor(name, (1, 16, 16)).out_features
    assert extractor(torch.rand(2, *shape)).shape == (2, width)


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_learned_extractors_have_128_features(name):
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
def test_bytes_stay_bytes_where_the_trunk_does_nothing(name):
    images = torch.zeros(1, 1, 16, 16, dtype=torch.uint8)
    assert make_extractor(name, (1, 16, 16)).trunk(images).dtype == torch.uint8


def test_pixels_leave_numbers_alone():
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
def test_arrays_are_used_as_they_are(name):
    assert make_extractor(name, SHAPES[name]).prepare is None


def test_identity_is_not_for_image_files():
    with pytest.raises(
        ValueError, match=r"image files need one of gradients, cnn, mlp, efficientnet-lite0, .*resnet101$"
    ):
        make_extractor("identity", None)


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_settled_is_all_of_it(name):
    extractor, x = make_extractor(name, SHAPES[name]), samples(name)
    assert torch.equal(extractor.settled()(x), extractor(x))
    assert (extractor.settled() is extractor.trunk) == (name in ("gradients", "identity"))


@pytest.mark.parametrize("learned", ["weight", "bias"])
def test_a_block_that_has_learned_something_is_settled_too(learned):
    extractor, x = make_extractor("identity", (24,)), samples("identity")
    torch.nn.init.ones_(getattr(extractor.adapter.outer, learned))
    assert not torch.equal(extractor(x), x)
    assert torch.equal(extractor.settled()(x), extractor(x))


@pytest.mark.parametrize("name", SHAPES)
def test_weights_are_for_backbones(name):
    make_extractor(name, SHAPES[name], weights="none")
    with pytest.raises(ValueError, match=rf"^model.weights=some.pth: extractor '{name}' has no weights to load"):
        make_extractor(name, SHAPES[name], weights="some.pth")


def test_the_names():
    backbones = ["efficientnet-lite0", "efficientnet-lite0-plus", "efficientnet-lite0-small"]
    backbones += ["resnet18", "resnet50", "resnet101"]
    assert list(EXTRACTORS) == [*SHAPES, *backbones]


def test_an_unknown_name_lists_those_that_exist():
    with pytest.raises(ValueError, match=r"gradients, cnn, mlp, identity, efficientnet-lite0, .*; got 'resnet'"):
        make_extractor("resnet", (3, 32, 32))


def test_libraries_of_backbones_are_imported_when_they_are_needed():
    script = "import sys, fedrf.models.extractors\nprint([n for n in sys.modules if n.startswith(('torchv', 'effic'))])"
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
def test_samples_of_the_wrong_shape(name, shape):
    with pytest.raises(ValueError, match=f"extractor '{name}' needs .*; got samples of shape") as caught:
        make_extractor(name, shape)
    assert str(shape) in str(caught.value)
    assert "\n" not in str(caught.value)
