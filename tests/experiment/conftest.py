"""Small data sets of image files, and settings of runs with them."""

import numpy as np
import pytest
from PIL import Image

from fedrf.experiment.results import RunFolder
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.extractors.preparation import Preparation
from tests.conftest import TINY

COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
LIGHT = {"clinic": 0, "ward": 30, "home": -30}
IMAGES_PER_CLASS = 6


def write_images(root, per_class=IMAGES_PER_CLASS):
    """Write three domains of three classes: noisy images of one colour, lighter in one domain, darker in another."""
    random = np.random.RandomState(0)
    for domain, light in LIGHT.items():
        for name, colour in COLOURS.items():
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(per_class):
                size = (40 + number, 50, 3)
                noise = random.normal(light, 25, size) + np.array(colour)
                Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.jpg")
    return root


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture
def small_images(monkeypatch):
    """Let backbones see images of 32 × 32 pixels, which they compute faster."""

    def make(*arguments):
        extractor = make_extractor(*arguments)
        extractor.prepare = Preparation(32, 32)
        return extractor

    monkeypatch.setattr("fedrf.federation.client.make_extractor", make)


def image_settings(root, **more):
    """Return settings of a small run with images, with ``__`` for the dot in further keys."""
    keys = {
        **TINY,
        "data.name": "folder",
        "data.root": str(root),
        "data.target": "home",
        "model.extractor": "efficientnet-lite0-small",
        "federation.mode": "sync",
        "model.num_features": 60,
    }
    keys.pop("data.samples")
    return keys | {key.replace("__", "."): value for key, value in more.items()}


def figures(result):
    """Return the figures of a run without times, in a fixed order."""
    kept = ("client", "round", "step", "loss", "mmd", "accuracy", "information")
    return sorted(({key: row[key] for key in kept if key in row} for row in RunFolder(result.folder).rows()), key=repr)
