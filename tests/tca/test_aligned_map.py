"""RF-TCA from additive statistics, against a generalised eigenproblem and the ridge regression alone."""

import numpy as np
import pytest
from scipy.linalg import eigh, subspace_angles

from fedrf.tca.aligned_map import aligned_class_map, aligned_components
from fedrf.tca.source_statistics import SourceStatistics

SIZE, CLASSES = 12, 3


def covariance(seed):
    rows = np.random.RandomState(seed).randn(40, SIZE) * np.linspace(2, 0.2, SIZE)
    return np.cov(rows.T)


def statistics(seed):
    return SourceStatistics.of_source(np.random.RandomState(seed).randn(SIZE, CLASSES), covariance(seed))


@pytest.mark.parametrize("sources", [1, 3])
@pytest.mark.parametrize("gamma", [1e-3, 0.5, 100.0])
def test_components_are_those_of_the_generalised_eigenproblem(gamma, sources):
    """Maximise WᵀSW against Wᵀ(γI + VVᵀ)W."""
    scatter, discrepancies = covariance(0), np.random.RandomState(1).randn(SIZE, sources)
    ours = aligned_components(scatter, discrepancies, gamma, 4)
    expected = eigh(scatter, gamma * np.eye(SIZE) + discrepancies @ discrepancies.T)[1][:, -4:]
    assert subspace_angles(ours, expected).max() < 1e-6


def test_without_gamma_the_domain_means_coincide():
    discrepancies = np.random.RandomState(1).randn(SIZE, 2)
    aligner = aligned_components(covariance(0), discrepancies, 0.0, 5)
    assert np.abs(aligner.T @ discrepancies).max() < 1e-9
    equal_domains = aligned_components(covariance(0), np.zeros((SIZE, 1)), 0.0, 5)
    assert np.isfinite(equal_domains).all()


def test_all_components_and_a_large_gamma_are_the_ridge_regression():
    source, target = statistics(0), statistics(1)
    discrepancies = np.random.RandomState(1).randn(SIZE, 1)
    ours = aligned_class_map(source, target, discrepancies, 1e9, SIZE, 0.3)
    np.testing.assert_allclose(ours, source.class_map(0.3), rtol=1e-5, atol=1e-7)


def test_the_map_is_a_ridge_regression_on_aligned_features():
    source, target, discrepancies = statistics(0), statistics(1), np.random.RandomState(1).randn(SIZE, 1)
    ours = aligned_class_map(source, target, discrepancies, 0.1, 3, 0.3)
    scatter = (source.covariance + target.covariance) / 2 + discrepancies @ discrepancies.T / 4
    columns = eigh(scatter, 0.1 * np.eye(SIZE) + discrepancies @ discrepancies.T)[1][:, -3:]
    # Up to rotations of U: W = PU has WᵀP⁻²W = I.
    inverse = np.eye(SIZE) + discrepancies @ discrepancies.T / 0.1
    columns = columns @ np.linalg.inv(np.linalg.cholesky(columns.T @ inverse @ columns)).T
    shift = 0.3 * np.trace(source.covariance) / SIZE * np.eye(3)
    expected = columns @ np.linalg.solve(
        columns.T @ source.covariance @ columns + shift, columns.T @ source.class_covariance
    )
    np.testing.assert_allclose(ours, expected, atol=1e-8)
