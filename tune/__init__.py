"""Sweeps over the hyperparameters of fedrf, with Ray Tune or in closed form."""
