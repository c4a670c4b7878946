"""Images on disk, and a small network that counts its forward passes."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fedrf.data.content import ImageFiles
from fedrf.data.samples import Samples
from fedrf.models.trunk import BATCH_SIZE


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Each test has its own cache folder."""
    monkeypatch.setenv("FEDRF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def layers():
    class Counting(nn.Sequential):
        passes = 0

        def forward(self, x):
            self.passes += 1
            assert len(x) == BATCH_SIZE
            return super().forward(x.float())

    torch.manual_seed(0)
    return Counting(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


@pytest.fixture
def samples(tmp_path):
    random = np.random.RandomState(0)
    (tmp_path / "images").mkdir()
    for number in range(70):
        pixels = random.randint(0, 256, (12, 9 + number % 5, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"images/{number:02d}.png")
    content = ImageFiles(tmp_path / "images", [f"{number:02d}.png" for number in range(70)])
    return Samples.all_of(content, np.arange(70) % 4)
