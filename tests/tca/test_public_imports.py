"""The public import paths of random features and of the MMD."""

import fedrf.alignment
import fedrf.features
from fedrf.tca import mmd, random_features


def test_features():
    assert fedrf.features.RandomFourierFeatures is random_features.RandomFourierFeatures
    assert fedrf.features.median_sigma is random_features.median_sigma


def test_alignment():
    for name in ("mean_embedding", "mmd_loss", "proximal_step"):
        assert getattr(fedrf.alignment, name) is getattr(mmd, name)
