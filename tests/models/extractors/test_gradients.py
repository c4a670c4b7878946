"""Histograms of oriented gradients: invariances, and hand-computed images."""

import math

import pytest
import torch
from sklearn.datasets import load_digits

from fedrf.models.extractors.gradients import OrientedGradients


@pytest.fixture(scope="module")
def images():
    handwritten = torch.from_numpy(load_digits().images[:20, None] / 16).float()
    return torch.nn.functional.interpolate(handwritten, size=(16, 16), mode="bilinear")


def test_histograms_are_invariant_to_brightness_contrast_and_polarity(images):
    trunk = OrientedGradients()
    plain = trunk(images)
    for changed in (images + 0.3, 0.01 * images, 1 - images):
        torch.testing.assert_close(trunk(changed), plain, rtol=1e-3, atol=1e-3)


def test_histograms_depend_on_where_strokes_are(images):
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
def test_a_ramp_votes_for_its_direction(angle, shares):
    down, right = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    ramp = math.cos(math.radians(angle)) * right + math.sin(math.radians(angle)) * down
    # An inner cell of 4 × 4, because gradients differ at the border.
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


def test_strong_strokes_weaken_only_the_cells_around_them():
    image = torch.zeros(1, 1, 16, 16)
    for top, left, ink in ((1, 1, 1.0), (1, 5, 0.3), (9, 9, 0.3)):
        image[..., top : top + 2, left : left + 2] = ink
    strength = OrientedGradients(grids=(4,))(image).reshape(8, 4, 4).norm(dim=0)
    assert strength[0, 1] < 0.7 * strength[2, 2]


def test_the_colour_with_the_largest_gradient_is_used():
    strong, weak = torch.rand(2, 4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    trunk = OrientedGradients()
    together = trunk(torch.cat([0.001 * weak, strong, 0.001 * weak], dim=1))
    torch.testing.assert_close(together, trunk(strong), rtol=0, atol=0.01)
    assert (trunk(weak) - together).abs().max() > 0.5
