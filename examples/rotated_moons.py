"""A custom data set: two moons, rotated by another angle in every domain.

Run it with `fedrf run data.name=rotated_moons:RotatedMoons data.target=30-degrees`.
"""

import numpy as np
from sklearn.datasets import make_moons

from fedrf.data.content import Arrays
from fedrf.data.dataset import Dataset
from fedrf.data.samples import Samples

ANGLES = {"0-degrees": 0, "15-degrees": 15, "30-degrees": 30}


class RotatedMoons(Dataset):
    """Two classes in the plane; a real data set would read its files below `data.root` in `load`."""

    name = "rotated-moons"
    about = "two moons in 3 domains, rows of 2 features"
    origin = "scikit-learn"
    content = "features"
    settings = {"model.extractor": "identity", "model.num_features": 100, "model.dim": 16}

    def domains(self, config):
        """Return the names of all domains."""
        return tuple(ANGLES)

    def classes(self, config):
        """Return the names of the classes, in the order of their labels."""
        return ("upper", "lower")

    def locate(self, config, domain):
        """Return None: there are no files to find."""
        return None

    def load(self, config, domain):
        """Return the samples of one domain, with their labels."""
        position, angle = list(ANGLES).index(domain), np.deg2rad(ANGLES[domain])
        rows, labels = make_moons(400, noise=0.1, random_state=position)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return Samples.all_of(Arrays((rows @ turn.T).astype(np.float32)), labels.astype(np.int64))
