"""Affine transforms: hand-computed ones, their bounds, and one transform for all maps of a sample."""

import numpy as np
import pytest
import torch

from fedrf.models.extractors.builders import make_extractor
from fedrf.models.extractors.two_scales import NUM_VIEWS
from fedrf.models.extractors.warp import SHEAR, SHIFT, draw_warps, warp

IDENTITY = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def maps(count=2, side=8):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def test_the_identity_changes_nothing():
    torch.testing.assert_close(warp(maps(), IDENTITY.expand(2, 2, 3)), maps(), rtol=0, atol=1e-5)


def test_a_shift_by_whole_pixels_by_hand():
    shift = IDENTITY.clone()
    shift[0, 2] = 2 * 2 / 8  # two of eight pixels; a side has length 2
    moved = warp(maps(1), shift[None])
    torch.testing.assert_close(moved[..., :-2], maps(1)[..., 2:], rtol=0, atol=1e-5)
    torch.testing.assert_close(moved[..., -2:], maps(1)[..., -1:].expand(1, 3, 8, 2), rtol=0, atol=1e-5)


def test_a_quarter_turn_by_hand():
    turn = torch.tensor([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])
    torch.testing.assert_close(warp(maps(1), turn), maps(1).rot90(1, (2, 3)), rtol=0, atol=1e-5)


def test_warps_are_small_and_different_and_depend_only_on_the_seed():
    warps = draw_warps(500, np.random.RandomState(3))
    assert warps.shape == (500, 2, 3)
    for shifts in warps[:, :, 2].T:
        assert 0.9 * SHIFT < float(shifts.abs().max()) <= SHIFT
    assert float((warps[:, 0, 2] - warps[:, 1, 2]).abs().max()) > SHIFT
    # Rotation and scaling are (c, -s; s, c); the shear is added to -s.
    torch.testing.assert_close(warps[:, 0, 0], warps[:, 1, 1])
    shears = warps[:, 0, 1] + warps[:, 1, 0]
    assert SHEAR / 2 < float(shears.abs().max()) <= SHEAR
    scales = (warps[:, 0, 0].square() + warps[:, 1, 0].square()).sqrt()
    assert 0.8 < float(scales.min()) < 0.85
    assert 1.18 < float(scales.max()) < 1.25
    angles = torch.atan2(warps[:, 1, 0], warps[:, 0, 0]).rad2deg().abs()
    assert 15 < float(angles.max()) <= 20.001
    assert len(warps.unique(dim=0)) == 500
    assert torch.equal(warps, draw_warps(500, np.random.RandomState(3)))


@pytest.mark.filterwarnings("ignore:efficientnet")
def test_all_maps_of_a_sample_have_the_same_warp():
    upper = make_extractor("efficientnet-lite0-small", None, "none").adapter
    shapes = [(24, 12, 12), (24, 16, 16)]
    size = sum(NUM_VIEWS * channels * height * width for channels, height, width in shapes)
    rows = torch.randn(3, size, generator=torch.Generator().manual_seed(1))
    augmented = upper.augmented(rows, np.random.RandomState(5))
    assert augmented.shape == rows.shape
    warps, start = draw_warps(3, np.random.RandomState(5)), 0
    for channels, height, width in shapes:
        for _ in range(NUM_VIEWS):
            end = start + channels * height * width
            expected = warp(rows[:, start:end].reshape(3, channels, height, width), warps)
            torch.testing.assert_close(augmented[:, start:end], expected.flatten(1))
            start = end
    assert start == size
