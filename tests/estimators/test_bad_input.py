"""Bad input is handled, or gets one clear ValueError."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

from tests.estimators.test_conventions import every_estimator, small


@every_estimator
@pytest.mark.parametrize(
    ("spoil", "message"),
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
        (lambda x, d: (np.ones_like(x), d), "all rows are equal"),
    ],
)
def test_bad_rows(name, spoil, message, domains):
    rows, domain = spoil(*domains)
    with pytest.raises(ValueError, match=message):
        small(name).fit(rows, sample_domain=domain)


@every_estimator
@pytest.mark.parametrize(
    ("settings", "message"),
    [
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
        ({"dim": 1000}, "dim must be at most"),
    ],
)
def test_bad_settings(name, settings, message, domains):
    rows, domain = domains
    with pytest.raises(ValueError, match=message):
        small(name, **settings).fit(rows, sample_domain=domain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_features": 0}, "num_features must be a positive integer; got 0"),
        ({"random_state": None}, "seed must be an integer"),
        ({"random_state": -5}, "seed must be an integer"),
        ({"dim": 41, "num_features": np.int64(20)}, "dim must be at most 2 × num_features = 40; got 41"),
        ({"dim": 41}, "dim must be at most 2 × num_features = 40; got 41"),
    ],
)
def test_bad_settings_of_random_features(settings, message, domains):
    rows, domain = domains
    with pytest.raises(ValueError, match=message):
        small("rf-tca", **settings).fit(rows, sample_domain=domain)


@every_estimator
def test_wrong_columns_at_transform(name, domains):
    rows, domain = domains
    fitted = small(name).fit(rows, sample_domain=domain)
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 6 features"):
        fitted.transform(rows[:, :3])


@every_estimator
def test_use_before_fit(name, domains):
    estimator = small(name)
    for use in (lambda: estimator.transform(domains[0]), lambda: estimator.aligner_, lambda: estimator.mmd_):
        with pytest.raises(NotFittedError):
            use()


@every_estimator
@pytest.mark.parametrize("convert", [scipy.sparse.csr_matrix, scipy.sparse.coo_array, lambda x: x.tolist()])
def test_other_containers_are_handled(name, convert, domains):
    rows, domain = domains
    rows = rows * (np.abs(rows) > 0.5)
    expected = small(name).fit_transform(rows, sample_domain=domain)
    aligned = small(name).fit(convert(rows), sample_domain=domain.tolist()).transform(convert(rows))
    np.testing.assert_allclose(aligned, expected, atol=1e-12)


@every_estimator
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float16])
def test_other_numbers_are_handled(name, dtype, domains):
    rows, domain = domains
    rows = np.abs(rows * 4).astype(int).astype(dtype)
    expected = small(name).fit_transform(rows.astype(np.float64), sample_domain=domain)
    aligned = small(name).fit_transform(rows, sample_domain=domain)
    assert aligned.dtype == np.float64
    np.testing.assert_array_equal(aligned, expected)


def test_kernel_forms_refuse_what_does_not_fit_into_memory(domains, monkeypatch):
    rows, domain = domains
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1000})())
    for name in ("tca", "r-tca"):
        with pytest.raises(ValueError, match=r"120 rows need about .* RFTCA"):
            small(name).fit(rows, sample_domain=domain)
    small("rf-tca").fit(rows, sample_domain=domain)
