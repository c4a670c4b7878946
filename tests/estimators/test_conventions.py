"""scikit-learn's conventions, for every estimator of the registry."""

import pickle

import numpy as np
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedrf.estimators import ESTIMATORS, RFTCA, RTCA, TCA
from tests.conftest import make_domains

SMALL = {"rf-tca": {"dim": 3, "num_features": 20}, "r-tca": {"dim": 3}, "tca": {"dim": 3}}


def small(name, **settings):
    return ESTIMATORS[name](**{**SMALL[name], "gamma": 0.01, **settings})


every_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def parity(X):
    count = X.shape[0] if scipy.sparse.issparse(X) else len(np.asarray(X, dtype=object))
    return np.where(np.arange(count) % 2, -1, 1)


class DomainsByParity:
    """An estimator as scikit-learn's checks can call it: without domains, odd rows are target rows."""

    def fit(self, X, y=None, *, sample_domain=None):
        return super().fit(X, y, sample_domain=parity(X))


class CheckedTCA(DomainsByParity, TCA): ...


class CheckedRTCA(DomainsByParity, RTCA): ...


class CheckedRFTCA(DomainsByParity, RFTCA):
    def partial_fit(self, X, y=None, *, sample_domain=None):
        return super().partial_fit(X, y, sample_domain=parity(X))


@parametrize_with_checks([CheckedTCA(dim=1), CheckedRTCA(dim=1), CheckedRFTCA(dim=1, num_features=5)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_estimator
def test_fit_transform_is_fit_then_transform(name, domains):
    rows, domain = domains
    together = small(name).fit_transform(rows, sample_domain=domain)
    apart = small(name).fit(rows, sample_domain=domain).transform(rows)
    np.testing.assert_array_equal(together, apart)
    assert together.shape == (len(rows), 3)


@every_estimator
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept(name, dtype, domains):
    rows, domain = domains
    exact = small(name).fit_transform(rows, sample_domain=domain)
    aligned = small(name).fit_transform(rows.astype(dtype), sample_domain=domain)
    assert aligned.dtype == dtype
    np.testing.assert_allclose(aligned, exact, atol=2e-4 if dtype == np.float32 else 0)


@every_estimator
def test_out_of_sample_rows_go_where_equal_rows_went(name, domains):
    rows, domain = domains
    estimator = small(name).fit(rows, sample_domain=domain)
    aligned = estimator.transform(rows)
    np.testing.assert_allclose(estimator.transform(rows[10:13]), aligned[10:13], atol=1e-12)
    unseen = estimator.transform(rows[10:11] + 1e-6)
    np.testing.assert_allclose(unseen, aligned[10:11], atol=1e-4)


@every_estimator
@pytest.mark.parametrize("whiten", [False, True])
def test_scaling_is_as_documented(name, whiten, domains):
    rows, domain = domains
    estimator = small(name, whiten=whiten).fit(rows, sample_domain=domain)
    aligned = estimator.transform(rows)
    np.testing.assert_allclose(aligned.mean(axis=0), 0, atol=1e-10 * np.abs(aligned).max())
    expected = np.eye(3) if whiten else np.diag(estimator.eigenvalues_ / estimator.eigenvalues_.mean())
    np.testing.assert_allclose(np.cov(aligned.T, bias=True), expected, atol=1e-8 * expected.max())


@every_estimator
@pytest.mark.parametrize("whiten", [False, True])
def test_mmd_falls_and_is_the_distance_of_the_aligned_means(name, whiten, domains):
    rows, domain = domains
    estimator = small(name, gamma=1e-4, whiten=whiten).fit(rows, sample_domain=domain)
    aligned = estimator.transform(rows)
    difference = aligned[domain > 0].mean(axis=0) - aligned[domain < 0].mean(axis=0)
    assert estimator.mmd_.after == pytest.approx(np.square(difference).sum() / aligned.var(axis=0).sum())
    assert estimator.mmd_.after < 0.1 * estimator.mmd_.before


@every_estimator
def test_gamma_path_shares_the_work_and_equals_separate_fits(name, domains):
    rows, domain = domains
    fitted = small(name).fit(rows, sample_domain=domain)
    gammas = [0.0, 1e-3, 1.0, "auto"]
    path = fitted.gamma_path(gammas)
    assert [member.gamma for member in path] == gammas
    for member in path:
        alone = clone(member).fit(rows, sample_domain=domain)
        np.testing.assert_array_equal(member.transform(rows), alone.transform(rows))
    assert fitted.gamma == 0.01
    np.testing.assert_array_equal(fitted.transform(rows), small(name).fit_transform(rows, sample_domain=domain))
    assert all(member._problem() is fitted._problem() for member in path)


@every_estimator
def test_gamma_auto_is_the_middle_of_the_informative_range(name, domains):
    rows, domain = domains
    fitted = small(name, gamma="auto").fit(rows, sample_domain=domain)
    low, high = fitted.informative_gamma_range()
    assert 0 < low < high
    assert fitted.gamma_ == pytest.approx(np.sqrt(low * high))
    assert [member.gamma_ for member in fitted.gamma_path([0.5, "auto"])] == [0.5, fitted.gamma_]


@every_estimator
def test_domains_that_coincide(name, domains):
    rows, _ = domains
    twice, domain = np.vstack([rows, rows[::-1]]), np.repeat([1, -1], len(rows))
    fitted = small(name, gamma="auto").fit(twice, sample_domain=domain)
    assert fitted.gamma_ == 0
    assert 0 <= fitted.mmd_.before < 1e-10
    free = small(name, gamma=np.inf).fit(twice, sample_domain=domain)
    np.testing.assert_allclose(fitted.transform(rows), free.transform(rows), atol=1e-6)


@every_estimator
def test_clone_params_and_pickle(name, domains):
    rows, domain = domains
    estimator = small(name)
    assert clone(estimator).get_params() == estimator.get_params()
    fitted = estimator.fit(rows, sample_domain=domain)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(rows), fitted.transform(rows))


@every_estimator
@pytest.mark.parametrize("change", [{"gamma": 5.0}, {"whiten": True}, {"dim": 2}, {"sigma": 9.0}])
def test_changed_settings_take_effect_at_the_next_fit(name, change, domains):
    rows, domain = domains
    estimator = small(name).fit(rows, sample_domain=domain)
    before = estimator.transform(rows)
    estimator.set_params(**change)
    np.testing.assert_array_equal(estimator.transform(rows), before)
    assert len(estimator.get_feature_names_out()) == 3
    assert not np.array_equal(estimator.fit_transform(rows, sample_domain=domain), before)


@every_estimator
def test_a_failed_fit_is_not_half_a_fit(name, domains):
    rows, domain = domains
    estimator = small(name).fit(rows, sample_domain=domain)
    before = estimator.transform(rows)
    with pytest.raises(ValueError, match="all rows are equal"):
        estimator.fit(np.ones_like(rows)[:10], sample_domain=domain[:10])
    np.testing.assert_array_equal(estimator.transform(rows), before)


@every_estimator
def test_inside_a_pipeline_with_metadata_routing(name, domains):
    rows, domain = domains
    labels = (rows[:, 1] > 0).astype(int)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(small(name), LogisticRegression())
        pipeline.fit(rows, labels, sample_domain=domain)
    assert pipeline.score(rows, labels) > 0.6
    with sklearn.config_context(enable_metadata_routing=False):
        pipeline = make_pipeline(small(name), LogisticRegression())
        pipeline.fit(rows, labels, **{f"{name.replace('-', '')}__sample_domain": domain})
    assert pipeline.predict(rows).shape == (len(rows),)


@every_estimator
def test_feature_names(name, domains):
    rows, domain = domains
    names = small(name).fit(rows, sample_domain=domain).get_feature_names_out()
    assert list(names) == [f"{name.replace('-', '')}{index}" for index in range(3)]


@every_estimator
def test_several_sources_and_targets_count_by_sign(name):
    rows, domain = make_domains()
    many = np.where(domain > 0, np.arange(len(domain)) % 3 + 1, -(np.arange(len(domain)) % 2) - 1)
    np.testing.assert_array_equal(
        small(name).fit_transform(rows, sample_domain=many), small(name).fit_transform(rows, sample_domain=domain)
    )
