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
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedrf.estimators import ESTIMATORS, ComponentAligner
from fedrf.estimators.labelled import LabelledAligner
from tests.conftest import make_domains

SMALL = {
    "rf-tca": {"dim": 3, "num_features": 20, "gamma": 0.01},
    "r-tca": {"dim": 3, "gamma": 0.01},
    "tca": {"dim": 3, "gamma": 0.01},
    "jda": {"dim": 3, "gamma": 0.01},
    "coral": {},
    "gfk": {"dim": 3},
    "sa": {"dim": 3},
    "dann": {"dim": 3, "steps": 10, "batch_size": 30},
}
WIDTHS = dict.fromkeys(SMALL, 3) | {"coral": 6, "gfk": 6}


def takes(name, *parameters):
    return set(parameters) <= set(ESTIMATORS[name]().get_params())


def small(name, **settings):
    """A quick estimator; settings that it does not have are left out."""
    return ESTIMATORS[name](**SMALL[name] | {key: value for key, value in settings.items() if takes(name, key)})


def labels_of(rows):
    return (rows[:, 1] > np.median(rows[:, 1])).astype(int)


def fitted(name, rows, domain, **settings):
    return small(name, **settings).fit(rows, labels_of(rows), sample_domain=domain)


def align(estimator, rows, domain):
    return estimator.fit_transform(rows, labels_of(rows), sample_domain=domain)


every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
every_component_aligner = pytest.mark.parametrize(
    "name", [name for name, estimator in ESTIMATORS.items() if issubclass(estimator, ComponentAligner)]
)
every_labelled_aligner = pytest.mark.parametrize(
    "name", [name for name, estimator in ESTIMATORS.items() if issubclass(estimator, LabelledAligner)]
)


def parity(X):
    count = X.shape[0] if scipy.sparse.issparse(X) else len(np.asarray(X, dtype=object))
    return np.where(np.arange(count) % 2, -1, 1)


def checked(name, **settings):
    """An estimator as scikit-learn's checks can call it: odd rows are target rows, and all are mapped as such."""

    class Checked(ESTIMATORS[name]):
        def fit(self, X, y=None, *, sample_domain=None):
            return super().fit(X, y, sample_domain=parity(X))

        def fit_transform(self, X, y=None, *, sample_domain=None):
            return self.fit(X, y).transform(X)

    if name == "rf-tca":
        Checked.partial_fit = lambda self, X, y=None: ESTIMATORS[name].partial_fit(self, X, sample_domain=parity(X))
    Checked.__name__ = Checked.__qualname__ = f"Checked{ESTIMATORS[name].__name__}"
    globals()[Checked.__name__] = Checked  # where pickle looks for it
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
def test_what_is_given_is_left_as_it_was(name, domains):
    rows, domain = domains
    labels = labels_of(rows)
    before = rows.copy(), labels.copy(), domain.copy()
    fitted(name, rows, domain).transform(rows, sample_domain=domain)
    for given, kept in zip((rows, labels, domain), before, strict=True):
        np.testing.assert_array_equal(given, kept)


@every_estimator
def test_out_of_sample_rows_go_where_equal_rows_went(name, domains):
    rows, domain = domains
    estimator = fitted(name, rows, domain)
    aligned = estimator.transform(rows, sample_domain=domain)
    few = slice(10, 13)
    np.testing.assert_allclose(estimator.transform(rows[few], sample_domain=domain[few]), aligned[few], atol=1e-12)
    unseen = estimator.transform(rows[few] + 1e-6, sample_domain=domain[few])
    np.testing.assert_allclose(unseen, aligned[few], atol=1e-4)


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that an operation made."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **kwargs or {})
        sizes = [one.numel() for one in tree_leaves(made) if isinstance(one, torch.Tensor)]
        self.size = max(self.size, *sizes) if sizes else self.size
        return made


@every_estimator
@pytest.mark.parametrize("kernel", [None, "gaussian"])
def test_only_kernel_methods_compare_all_rows_with_each_other(name, kernel):
    rows, domain = make_domains(500, 500, 5)
    with LargestTensor() as largest:
        # With a number for sigma, since its median is taken over pairs, of at most 500 rows.
        fitted(name, rows, domain, **{"kernel": kernel} if kernel else {}, sigma=2.0).transform(
            rows, sample_domain=domain
        )
    exact = name in ("tca", "r-tca") or (name == "jda" and kernel)
    assert (largest.size >= len(rows) ** 2) == bool(exact)
    if not exact:
        assert largest.size <= len(rows) * 40


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
def test_mmd_falls_and_is_the_distance_of_the_aligned_means(name, whiten, domains):
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
    assert [member.gamma for member in path] == gammas
    for member in path:
        alone = clone(member).fit(rows, sample_domain=domain)
        np.testing.assert_array_equal(member.transform(rows), alone.transform(rows))
    assert first.gamma == 0.01
    np.testing.assert_array_equal(first.transform(rows), small(name).fit_transform(rows, sample_domain=domain))
    assert all(member._problem() is first._problem() for member in path)


@every_component_aligner
def test_gamma_auto_is_the_middle_of_the_informative_range(name, domains):
    rows, domain = domains
    estimator = small(name, gamma="auto").fit(rows, sample_domain=domain)
    low, high = estimator.informative_gamma_range()
    assert 0 < low < high
    assert estimator.gamma_ == pytest.approx(np.sqrt(low * high))
    assert [member.gamma_ for member in estimator.gamma_path([0.5, "auto"])] == [0.5, estimator.gamma_]


@every_component_aligner
def test_domains_that_coincide(name, domains):
    rows, _ = domains
    twice, domain = np.vstack([rows, rows[::-1]]), np.repeat([1, -1], len(rows))
    estimator = small(name, gamma="auto").fit(twice, sample_domain=domain)
    assert estimator.gamma_ == 0
    assert 0 <= estimator.mmd_.before < 1e-10
    free = small(name, gamma=np.inf).fit(twice, sample_domain=domain)
    np.testing.assert_allclose(estimator.transform(rows), free.transform(rows), atol=1e-6)


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
        if takes(name, *change) and (name, *change) != ("jda", "sigma")  # whose kernel is linear
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
def test_a_failed_fit_is_not_half_a_fit(name, domains):
    rows, domain = domains
    estimator = fitted(name, rows, domain)
    before = estimator.transform(rows, sample_domain=domain)
    with pytest.raises(ValueError, match=r"all (source )?rows are equal"):
        estimator.fit(np.full_like(rows, 0.1)[:10], np.zeros(10), sample_domain=domain[:10])
    np.testing.assert_array_equal(estimator.transform(rows, sample_domain=domain), before)


@every_estimator
def test_inside_a_pipeline_with_metadata_routing(name, domains):
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
def test_several_sources_and_targets_count_by_sign(name):
    rows, domain = make_domains()
    many = np.where(domain > 0, np.arange(len(domain)) % 3 + 1, -(np.arange(len(domain)) % 2) - 1)
    np.testing.assert_array_equal(align(small(name), rows, many), align(small(name), rows, domain))


@every_estimator
def test_labels_of_target_rows_are_never_read(name, domains):
    rows, domain = domains
    labels, target = labels_of(rows).astype(float), domain < 0
    expected = small(name).fit_transform(rows, labels, sample_domain=domain)
    for garbage in (-1, np.nan, np.inf, np.random.RandomState(0).randn(target.sum())):
        masked = labels.copy()
        masked[target] = garbage
        np.testing.assert_array_equal(small(name).fit_transform(rows, masked, sample_domain=domain), expected)
    anything = labels.astype(object)
    anything[target] = None
    anything[~target] = np.array(["no", "yes"])[labels[~target].astype(int)]
    np.testing.assert_array_equal(small(name).fit_transform(rows, anything, sample_domain=domain), expected)


@every_estimator
def test_labels_of_source_rows_are_read_only_where_they_are_needed(name, domains):
    rows, domain = domains
    other = np.random.RandomState(0).permutation(labels_of(rows))
    same = np.array_equal(
        align(small(name, gamma=1.0), rows, domain),
        small(name, gamma=1.0).fit_transform(rows, other, sample_domain=domain),
    )
    assert same != issubclass(ESTIMATORS[name], LabelledAligner)
    assert get_tags(small(name)).target_tags.required != same
