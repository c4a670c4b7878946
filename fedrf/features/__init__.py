"""Public import path of random features; `fedrf.tca.random_features` has the code."""

from fedrf.tca.random_features import RandomFourierFeatures, median_sigma

__all__ = ["RandomFourierFeatures", "median_sigma"]
