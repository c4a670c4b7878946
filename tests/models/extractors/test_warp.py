"""Maps that are moved a little: by hand, within bounds, and all of a sample's maps alike."""

import numpy as np
import pytest
import torch

from fedrf.models.extractors import make_extractor
from fedrf.models.extractors.two_scales import WAYS
from fedrf.models.extractors.warp import SHEAR, SHIFT, draw_warps, warp

STILL = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def maps(count=2, side=8):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def test_no_warp_changes_nothing():
    torch.testing.assert_close(warp(maps(), STILL.expand(2, 2, 3)), maps(), rtol=0, atol=1e-5)


def test_a_shift_by_whole_pixels_by_hand():
    shift = STILL.clone()
    shift[0, 2] = 2 * 2 / 8  # two pixels of eight, where the whole side is 2
    moved = warp(maps(1), shift[None])
    torch.testing.assert_close(moved[..., :-2], maps(1)[..., 2:], rtol=0, atol=1e-5)
    torch.testing.assert_close(moved[..., -2:], maps(1)[..., -1:].expand(1, 3, 8, 2), rtol=0, atol=1e-5)


def test_a_quarter_turn_by_hand():
    turn = torch.tensor([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])
    torch.testing.assert_close(warp(maps(1), turn), maps(1).rot90(1, (2, 3)), rtol=0, atol=1e-5)


def test_warps_are_small_and_differ_and_depend_on_their_seed_alone():
    warps = draw_warps(500, np.random.RandomState(3))
    assert warps.shape == (500, 2, 3)
    for shifts in warps[:, :, 2].T:
        assert 0.9 * SHIFT < float(shifts.abs().max()) <= SHIFT
    assert float((warps[:, 0, 2] - warps[:, 1, 2]).abs().max()) > SHIFT
    # Turning and scaling make (c, -s; s, c); what is not of that form is the shear.
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
def test_the_maps_of_a_sample_move_alike_and_each_sample_its_own_way():
    upper = make_extractor("efficientnet-lite0-small", None, "none").adapter
    shapes = [(24, 12, 12), (24, 16, 16)]
    size = sum(WAYS * channels * height * width for channels, height, width in shapes)
    rows = torch.randn(3, size, generator=torch.Generator().manual_seed(1))
    varied = upper.varied(rows, np.random.RandomState(5))
    assert varied.shape == rows.shape
    warps, start = draw_warps(3, np.random.RandomState(5)), 0
    for channels, height, width in shapes:
        for _ in range(WAYS):
            end = start + channels * height * width
            one = warp(rows[:, start:end].reshape(3, channels, height, width), warps)
            torch.testing.assert_close(varied[:, start:end], one.flatten(1))
            start = end
    assert start == size
