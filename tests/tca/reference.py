"""Dense reference solutions, and problems with random features, for the tests of `fedrf.tca`."""

import numpy as np
import scipy.linalg
import torch

from fedrf.tca.problems import ScatterProblem
from fedrf.tca.random_features import RandomFourierFeatures
from fedrf.tca.statistics import DomainStatistics


def scatter_problem(rows, domain, num_features=40, sigma=2.0, kernel="gaussian", seed=0):
    """Return the problem of RF-TCA for these rows, and their random features."""
    features = RandomFourierFeatures(rows.shape[1], num_features, sigma, kernel, seed, dtype=torch.float64)
    mapped = features(torch.from_numpy(rows))
    is_source = torch.from_numpy(domain > 0)
    return ScatterProblem(DomainStatistics.of(mapped[is_source]), DomainStatistics.of(mapped[~is_source])), mapped


def scatter_and_discrepancy(features, domain):
    """Return S and v of the paper, computed with n × n matrices; `features` has one sample per row."""
    count = len(features)
    centring = np.eye(count) - np.ones((count, count)) / count
    domain_weights = np.where(domain > 0, 1 / (domain > 0).sum(), -1 / (domain < 0).sum())
    return features.T @ centring @ features, features.T @ domain_weights


def dense_solution(scatter, penalty, dim):
    """Return the leading generalised eigenvalues and eigenvectors of S w = λ B w."""
    values, vectors = scipy.linalg.eigh(scatter, penalty)
    return values[::-1][:dim], vectors[:, ::-1][:, :dim]


def largest_angle(a, b):
    return scipy.linalg.subspace_angles(np.asarray(a), np.asarray(b)).max()


def centred(values):
    return values - values.mean(axis=0)
