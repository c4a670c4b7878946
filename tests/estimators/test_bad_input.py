"""Unusual input is converted; invalid input gives one clear ValueError."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

from fedrf.estimators import ESTIMATORS
from tests.estimators.cases import (
    align,
    every_component_aligner,
    every_estimator,
    every_labelled_aligner,
    fitted,
    labels_of,
    small,
    takes,
)


@every_estimator
@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (lambda x, d: (np.where(x == x[0, 0], np.nan, x), d), "NaN"),
        (lambda x, d: (np.where(x == x[0, 0], np.inf, x), d), "infinity"),
        (lambda x, d: (x, np.ones_like(d)), "sample_domain has source rows only; target rows are needed too"),
        (lambda x, d: (x, -np.ones_like(d)), "sample_domain has target rows only; source rows are needed too"),
        (lambda x, d: (x, None), "sample_domain is needed"),
        (lambda x, d: (x, d[:-1]), "one entry for each of the 120 rows"),
        (lambda x, d: (x, np.zeros_like(d)), "must hold integers"),
        (lambda x, d: (x, d * 0.5), "must hold integers"),
        (lambda x, d: (x, d * np.nan), "must hold integers"),
        (lambda x, d: (x, np.array(["a"] * len(d))), "must hold integers"),
        (lambda x, d: (x[:, :0], d), r"0 feature\(s\)"),
        (lambda x, d: (x[:0], d[:0]), r"0 sample\(s\)"),
        (lambda x, d: (x[:, 0], d), "Expected 2D array"),
        (lambda x, d: (x + 1j, d), "Complex data not supported"),
        (lambda x, d: (np.full(x.shape, "a"), d), "could not convert string"),
        (lambda x, d: (np.ones_like(x), d), r"all (source )?rows are equal"),
    ],
)
def test_invalid_rows(name, corrupt, message, domains):
    rows, domain = corrupt(*domains)
    with pytest.raises(ValueError, match=message):
        small(name).fit(rows, np.arange(len(rows)) % 2, sample_domain=domain)


INVALID_SETTINGS = [
    ({"gamma": -1.0}, "gamma must be a number, at least 0, or 'auto'; got -1.0"),
    ({"gamma": float("nan")}, "gamma must be a number"),
    ({"gamma": "large"}, "gamma must be a number"),
    ({"gamma": None}, "gamma must be a number"),
    ({"sigma": 0}, "sigma must be a positive number or 'median'; got 0"),
    ({"sigma": -2.0}, "sigma must be a positive number"),
    ({"sigma": "mean"}, "sigma must be a positive number or 'median'; got 'mean'"),
    ({"sigma": None}, "sigma must be a positive number"),
    ({"kernel": "rbf"}, "kernel must be one of gaussian, laplace, cauchy"),
    ({"dim": 0}, "dim must be a positive integer; got 0"),
    ({"dim": 2.5}, "dim must be a positive integer"),
    ({"reg": -0.5}, "reg must be a number, at least 0; got -0.5"),
    ({"reg": "auto"}, "reg must be a number, at least 0; got 'auto'"),
    ({"max_iter": 0}, "max_iter must be a positive integer; got 0"),
    ({"steps": 0}, "steps must be a positive integer; got 0"),
    ({"batch_size": 1.5}, "batch_size must be a positive integer; got 1.5"),
    ({"weight": -1}, "weight must be a number, at least 0; got -1"),
    ({"learning_rate": float("inf")}, "learning_rate must be a number, at least 0; got inf"),
    ({"random_state": None}, "(random_state|seed) must be an integer from 0"),
    ({"random_state": -5}, "(random_state|seed) must be an integer from 0"),
]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [(name, *case) for name in ESTIMATORS for case in INVALID_SETTINGS if takes(name, *case[0])],
)
def test_invalid_settings(name, settings, message, domains):
    rows, domain = domains
    if name == "jda" and "sigma" in settings:
        settings = settings | {"kernel": "gaussian"}
    with pytest.raises(ValueError, match=message):
        fitted(name, rows, domain, **settings)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("rf-tca", {"num_features": 0}, "num_features must be a positive integer; got 0"),
        ("rf-tca", {"dim": 41, "num_features": np.int64(20)}, "dim must be at most 2 × num_features = 40; got 41"),
        ("rf-tca", {"dim": 41}, "dim must be at most 2 × num_features = 40; got 41"),
        ("tca", {"dim": 121}, "dim must be at most the number of rows, 120; got 121"),
        ("r-tca", {"dim": 121}, "dim must be at most the number of rows, 120; got 121"),
        ("jda", {"dim": 7}, "dim must be at most the number of columns, 6; got 7"),
        ("jda", {"dim": 121, "kernel": "gaussian"}, "dim must be at most the number of rows, 120; got 121"),
        ("gfk", {"dim": 7}, "dim must be at most 6, the number of directions in which the source rows vary; got 7"),
        ("sa", {"dim": 7}, "dim must be at most 6, the number of directions in which the source rows vary; got 7"),
    ],
)
def test_settings_that_do_not_fit_the_rows(name, settings, message, domains):
    with pytest.raises(ValueError, match=message):
        fitted(name, *domains, **settings)


@pytest.mark.parametrize("name", ["gfk", "sa"])
def test_a_domain_of_few_rows_limits_dim(name, domains):
    rows, domain = domains
    few = np.concatenate([np.flatnonzero(domain > 0), np.flatnonzero(domain < 0)[:3]])
    with pytest.raises(ValueError, match=r"dim must be at most 2, .* target rows vary; got 3"):
        fitted(name, rows[few], domain[few])


@pytest.mark.parametrize("name", ["coral", "gfk", "sa"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_domain_of_equal_rows(name, side, domains):
    rows, domain = domains
    rows[domain > 0 if side == "source" else domain < 0] = 0.1
    with pytest.raises(ValueError, match=f"all {side} rows are equal"):
        small(name).fit(rows, sample_domain=domain)


@every_labelled_aligner
@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (lambda y: None, "requires y to be passed, but the target y is None: it learns from source labels"),
        (lambda y: y[:-1], "y must have one label for each of the 120 rows; it has 119"),
        (lambda y: y + 0.25, "Unknown label type: continuous"),
        (lambda y: y * np.nan, "NaN"),
        (lambda y: np.stack([y, y], axis=1), "y should be a 1d array"),
    ],
)
def test_invalid_labels(name, corrupt, message, domains):
    rows, domain = domains
    with pytest.raises(ValueError, match=message):
        small(name).fit(rows, corrupt(labels_of(rows)), sample_domain=domain)


@every_estimator
def test_wrong_columns_at_transform(name, domains):
    rows, domain = domains
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 6 features"):
        fitted(name, rows, domain).transform(rows[:, :3])


@every_estimator
def test_wrong_domains_at_transform(name, domains):
    rows, domain = domains
    estimator = fitted(name, rows, domain)
    with pytest.raises(ValueError, match="one entry for each of the 120 rows"):
        estimator.transform(rows, sample_domain=domain[:5])
    with pytest.raises(ValueError, match="must hold integers"):
        estimator.transform(rows, sample_domain=np.zeros(120))


@every_estimator
def test_use_before_fit(name, domains):
    rows, _ = domains
    estimator = small(name)
    with pytest.raises(NotFittedError):
        estimator.transform(rows)
    with pytest.raises(ValueError, match="source rows only"):
        estimator.fit(rows, np.zeros(120), sample_domain=np.ones(120))
    with pytest.raises(NotFittedError):
        estimator.transform(rows)


@every_component_aligner
def test_components_before_fit(name):
    estimator = small(name)
    for use in (lambda: estimator.aligner_, lambda: estimator.mmd_):
        with pytest.raises(NotFittedError):
            use()


@every_estimator
@pytest.mark.parametrize("convert", [scipy.sparse.csr_matrix, scipy.sparse.coo_array, lambda x: x.tolist()])
def test_other_containers_are_converted(name, convert, domains):
    rows, domain = domains
    rows = rows * (np.abs(rows) > 0.5)
    expected = align(small(name), rows, domain)
    estimator = small(name).fit(convert(rows), labels_of(rows).tolist(), sample_domain=domain.tolist())
    np.testing.assert_allclose(estimator.transform(convert(rows), sample_domain=domain), expected, atol=1e-12)


@every_estimator
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float16])
def test_other_dtypes_are_converted(name, dtype, domains):
    rows, domain = domains
    rows = np.abs(rows * 4).astype(int).astype(dtype)
    labels = np.arange(len(rows)) % 2
    expected = small(name).fit_transform(rows.astype(np.float64), labels, sample_domain=domain)
    aligned = small(name).fit_transform(rows, labels, sample_domain=domain)
    assert aligned.dtype == np.float64
    np.testing.assert_array_equal(aligned, expected)


def test_kernel_methods_reject_more_rows_than_fit_into_memory(domains, monkeypatch):
    rows, domain = domains
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1000})())
    for name, alternative in (("tca", "RFTCA"), ("r-tca", "RFTCA"), ("jda", "linear")):
        with pytest.raises(ValueError, match=rf"120 rows need about .* {alternative}"):
            fitted(name, rows, domain, kernel="gaussian")
    for name in set(ESTIMATORS) - {"tca", "r-tca"}:
        fitted(name, rows, domain)
