"""Scaling, MMD and γ of the aligners that solve an eigenproblem."""

import numpy as np
import pytest
from sklearn.base import clone

from tests.estimators.cases import (
    every_component_aligner,
    fitted,
    small,
)


@pytest.mark.parametrize("name", ["rf-tca", "r-tca", "tca", "jda"])
@pytest.mark.parametrize("whiten", [False, True])
def test_scaling_is_as_documented(name, whiten, domains):
    rows, domain = domains
    estimator = fitted(name, rows, domain, whiten=whiten)
    aligned = estimator.transform(rows)
    np.testing.assert_allclose(aligned.mean(axis=0), 0, atol=1e-10 * np.abs(aligned).max())
    expected = np.eye(3) if whiten else np.diag(estimator.eigenvalues_ / estimator.eigenvalues_.mean())
    np.testing.assert_allclose(np.cov(aligned.T, bias=True), expected, atol=1e-8 * expected.max())


@every_component_aligner
@pytest.mark.parametrize("whiten", [False, True])
def test_mmd_decreases_and_is_the_distance_of_the_aligned_means(name, whiten, domains):
    rows, domain = domains
    estimator = small(name, gamma=1e-4, whiten=whiten).fit(rows, sample_domain=domain)
    aligned = estimator.transform(rows)
    difference = aligned[domain > 0].mean(axis=0) - aligned[domain < 0].mean(axis=0)
    assert estimator.mmd_.after == pytest.approx(np.square(difference).sum() / aligned.var(axis=0).sum())
    assert estimator.mmd_.after < 0.1 * estimator.mmd_.before


@every_component_aligner
def test_gamma_path_shares_the_work_and_equals_separate_fits(name, domains):
    rows, domain = domains
    first = small(name).fit(rows, sample_domain=domain)
    gammas = [0.0, 1e-3, 1.0, "auto"]
    path = first.gamma_path(gammas)
    assert [aligner.gamma for aligner in path] == gammas
    for aligner in path:
        alone = clone(aligner).fit(rows, sample_domain=domain)
        np.testing.assert_array_equal(aligner.transform(rows), alone.transform(rows))
    assert first.gamma == 0.01
    np.testing.assert_array_equal(first.transform(rows), small(name).fit_transform(rows, sample_domain=domain))
    assert all(aligner._problem() is first._problem() for aligner in path)


@every_component_aligner
def test_gamma_auto_is_the_geometric_mean_of_the_informative_range(name, domains):
    rows, domain = domains
    estimator = small(name, gamma="auto").fit(rows, sample_domain=domain)
    low, high = estimator.informative_gamma_range()
    assert 0 < low < high
    assert estimator.gamma_ == pytest.approx(np.sqrt(low * high))
    assert [aligner.gamma_ for aligner in estimator.gamma_path([0.5, "auto"])] == [0.5, estimator.gamma_]


@every_component_aligner
def test_equal_domains(name, domains):
    rows, _ = domains
    twice, domain = np.vstack([rows, rows[::-1]]), np.repeat([1, -1], len(rows))
    estimator = small(name, gamma="auto").fit(twice, sample_domain=domain)
    assert estimator.gamma_ == 0
    assert 0 <= estimator.mmd_.before < 1e-10
    unconstrained = small(name, gamma=np.inf).fit(twice, sample_domain=domain)
    np.testing.assert_allclose(estimator.transform(rows), unconstrained.transform(rows), atol=1e-6)
