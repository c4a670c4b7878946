"""scikit-learn's conventions, for every estimator of the registry."""

import pickle

import numpy as np
import pytest
import scipy.sparse
import sklearn
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedrf.estimators import ESTIMATORS
from tests.conftest import make_domains
from tests.estimators.cases import (
    WIDTHS,
    align,
    every_estimator,
    fitted,
    labels_of,
    small,
    takes,
)


def parity(X):
    """Return domains for the rows of `X`: even rows are source rows, odd rows target rows."""
    count = X.shape[0] if scipy.sparse.issparse(X) else len(np.asarray(X, dtype=object))
    return np.where(np.arange(count) % 2, -1, 1)


def checked(name, **settings):
    """Return an estimator for scikit-learn's checks: fit uses `parity`, and all rows are mapped as target rows."""

    class Checked(ESTIMATORS[name]):
        def fit(self, X, y=None, *, sample_domain=None):
            return super().fit(X, y, sample_domain=parity(X))

        def fit_transform(self, X, y=None, *, sample_domain=None):
            return self.fit(X, y).transform(X)

    if name == "rf-tca":
        Checked.partial_fit = lambda self, X, y=None: ESTIMATORS[name].partial_fit(self, X, sample_domain=parity(X))
    Checked.__name__ = Checked.__qualname__ = f"Checked{ESTIMATORS[name].__name__}"
    globals()[Checked.__name__] = Checked  # so that pickle finds the class
    Checked.__init__ = ESTIMATORS[name].__init__
    return Checked(**settings)


SMALLEST = {"rf-tca": {"dim": 1, "num_features": 5}, "coral": {}, "dann": {"dim": 1, "steps": 2}}


@parametrize_with_checks([checked(name, **SMALLEST.get(name, {"dim": 1})) for name in ESTIMATORS])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_estimator
def test_fit_transform_is_fit_then_transform(name, domains):
    rows, domain = domains
    together = align(small(name), rows, domain)
    apart = fitted(name, rows, domain).transform(rows, sample_domain=domain)
    np.testing.assert_array_equal(together, apart)
    assert together.shape == (len(rows), WIDTHS[name])


@every_estimator
def test_without_domains_all_rows_are_target_rows(name, domains):
    rows, domain = domains
    estimator = fitted(name, rows, domain)
    as_targets = estimator.transform(rows)
    np.testing.assert_array_equal(as_targets, estimator.transform(rows, sample_domain=-np.ones(len(rows))))
    as_sources = estimator.transform(rows, sample_domain=np.ones(len(rows)))
    mixed = estimator.transform(rows, sample_domain=domain)
    np.testing.assert_allclose(mixed, np.where(domain[:, None] > 0, as_sources, as_targets), atol=1e-12)
    assert np.array_equal(as_sources, as_targets) == (name not in ("coral", "sa"))


@every_estimator
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept(name, dtype, domains):
    rows, domain = domains
    exact = align(small(name), rows, domain)
    aligned = align(small(name), rows.astype(dtype), domain)
    assert aligned.dtype == dtype
    np.testing.assert_allclose(aligned, exact, atol=2e-4 if dtype == np.float32 else 0)


@every_estimator
def test_arguments_are_not_modified(name, domains):
    rows, domain = domains
    labels = labels_of(rows)
    before = rows.copy(), labels.copy(), domain.copy()
    fitted(name, rows, domain).transform(rows, sample_domain=domain)
    for after, copy in zip((rows, labels, domain), before, strict=True):
        np.testing.assert_array_equal(after, copy)


@every_estimator
def test_new_rows_are_mapped_like_equal_fitted_rows(name, domains):
    rows, domain = domains
    estimator = fitted(name, rows, domain)
    aligned = estimator.transform(rows, sample_domain=domain)
    few = slice(10, 13)
    np.testing.assert_allclose(estimator.transform(rows[few], sample_domain=domain[few]), aligned[few], atol=1e-12)
    unseen = estimator.transform(rows[few] + 1e-6, sample_domain=domain[few])
    np.testing.assert_allclose(unseen, aligned[few], atol=1e-4)


class LargestTensor(TorchDispatchMode):
    """Record the size of the largest tensor that an operation returned."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        outputs = function(*args, **kwargs or {})
        sizes = [leaf.numel() for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        self.size = max(self.size, *sizes) if sizes else self.size
        return outputs


@every_estimator
@pytest.mark.parametrize("kernel", [None, "gaussian"])
def test_only_kernel_methods_form_a_matrix_of_rows_by_rows(name, kernel):
    rows, domain = make_domains(500, 500, 5)
    with LargestTensor() as largest:
        # sigma is a number, since its median needs the distances between up to 500 rows.
        fitted(name, rows, domain, **{"kernel": kernel} if kernel else {}, sigma=2.0).transform(
            rows, sample_domain=domain
        )
    exact = name in ("tca", "r-tca") or (name == "jda" and kernel)
    assert (largest.size >= len(rows) ** 2) == bool(exact)
    if not exact:
        assert largest.size <= len(rows) * 40


@every_estimator
def test_clone_params_and_pickle(name, domains):
    rows, domain = domains
    estimator = small(name)
    assert clone(estimator).get_params() == estimator.get_params()
    first = fitted(name, rows, domain)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).transform(rows), first.transform(rows))


CHANGES = [{"gamma": 5.0}, {"whiten": True}, {"dim": 2}, {"sigma": 9.0}, {"kernel": "laplace"}, {"reg": 0.1}]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (name, change)
        for name in ESTIMATORS
        for change in [*CHANGES, {"weight": 0.5}, {"random_state": 1}]
        if takes(name, *change) and (name, *change) != ("jda", "sigma")  # its kernel is linear
    ],
)
def test_changed_settings_take_effect_at_the_next_fit(name, change, domains):
    rows, domain = domains
    estimator = fitted(name, rows, domain)
    before = estimator.transform(rows, sample_domain=domain)
    estimator.set_params(**change)
    np.testing.assert_array_equal(estimator.transform(rows, sample_domain=domain), before)
    assert len(estimator.get_feature_names_out()) == WIDTHS[name]
    assert not np.array_equal(align(estimator, rows, domain), before)


@every_estimator
def test_a_failed_fit_keeps_the_previous_fit(name, domains):
    rows, domain = domains
    estimator = fitted(name, rows, domain)
    before = estimator.transform(rows, sample_domain=domain)
    with pytest.raises(ValueError, match=r"all (source )?rows are equal"):
        estimator.fit(np.full_like(rows, 0.1)[:10], np.zeros(10), sample_domain=domain[:10])
    np.testing.assert_array_equal(estimator.transform(rows, sample_domain=domain), before)


@every_estimator
def test_pipeline_with_and_without_metadata_routing(name, domains):
    rows, domain = domains
    labels = labels_of(rows)
    rows[:, 1] *= 2
    prefix = ESTIMATORS[name].__name__.lower()
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(small(name, steps=100, learning_rate=0.02), LogisticRegression())
        pipeline.fit(rows, labels, sample_domain=domain)
        assert pipeline.score(rows[domain < 0], labels[domain < 0]) > 0.6
        by_hand = LogisticRegression().fit(
            small(name, steps=100, learning_rate=0.02).fit_transform(rows, labels, sample_domain=domain), labels
        )
        np.testing.assert_array_equal(pipeline[-1].coef_, by_hand.coef_)
    with sklearn.config_context(enable_metadata_routing=False):
        pipeline = make_pipeline(small(name), LogisticRegression())
        pipeline.fit(rows, labels, **{f"{prefix}__sample_domain": domain})
    assert pipeline.predict(rows).shape == (len(rows),)


@every_estimator
def test_feature_names(name, domains):
    prefix = ESTIMATORS[name].__name__.lower()
    names = fitted(name, *domains).get_feature_names_out()
    assert list(names) == [f"{prefix}{index}" for index in range(WIDTHS[name])]


@every_estimator
def test_only_the_sign_of_the_domain_matters(name):
    rows, domain = make_domains()
    many = np.where(domain > 0, np.arange(len(domain)) % 3 + 1, -(np.arange(len(domain)) % 2) - 1)
    np.testing.assert_array_equal(align(small(name), rows, many), align(small(name), rows, domain))
