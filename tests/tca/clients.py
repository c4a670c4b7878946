"""Clients with random features and helpers that run federated RF-TCA on them."""

from math import inf

import numpy as np
import torch

from fedrf.tca.federated import SubspaceIteration, aligner_from_statistics, scatter_product
from fedrf.tca.problems import ScatterProblem
from fedrf.tca.random_features import RandomFourierFeatures
from fedrf.tca.statistics import DomainStatistics

GAMMAS = [0.0, 1e-3, 0.1, inf]
SIZES = [[400], [300, 90, 30]]
DIM = 12


def make_clients(source_sizes=(300, 90, 30), target_size=200, num_features=100, dtype=torch.float64, seed=0):
    """Return the random features of each client; samples cluster around shared centres, with one shift per client."""
    rng = np.random.RandomState(seed)
    centres = 1.5 * rng.randn(10, 32)
    random_features = RandomFourierFeatures(32, num_features, 12.0, dtype=dtype)
    features = []
    for size in (*source_sizes, target_size):
        rows = centres[rng.randint(10, size=size)] + rng.randn(size, 32) + 0.5 * rng.randn(32)
        features.append(random_features(torch.from_numpy(rows).to(dtype)))
    return features[:-1], features[-1]


def pooled_problem(sources, target):
    return ScatterProblem(DomainStatistics.of(torch.cat(sources).double()), DomainStatistics.of(target.double()))


def aligner_of_clients(sources, target, gamma, dim=DIM, **options):
    return aligner_from_statistics(
        [DomainStatistics.of(part) for part in sources], DomainStatistics.of(target), gamma, dim, **options
    )


def start_iteration(sources, target, dim=DIM, **options):
    return SubspaceIteration(
        [(len(part), part.mean(0)) for part in sources], (len(target), target.mean(0)), dim, **options
    )


def step(iteration, sources, target):
    iteration.update(sum(scatter_product(part, iteration.basis) for part in (*sources, target)))


def iterate(sources, target, dim=DIM, gamma=0.1, tolerance=1e-9, max_steps=50, **options):
    iteration, steps = start_iteration(sources, target, dim, **options), 0
    while iteration.residual(gamma) > tolerance:
        assert steps < max_steps
        step(iteration, sources, target)
        steps += 1
    return iteration, steps


def assert_same(aligner, expected, tolerance=1e-6):
    """Check that all columns are equal, including their signs."""
    torch.testing.assert_close(aligner, expected, rtol=0, atol=tolerance)
