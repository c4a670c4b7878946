import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.estimators import CORAL
from tests.conftest import make_domains


def by_definition(rows, domain, reg):
    """Return the aligned source rows, computed with powers of dense covariances."""
    source, target = rows[domain > 0], rows[domain < 0]
    powers = []
    for part, exponent in ((source, -0.5), (target, 0.5)):
        covariance = np.cov(part.T, bias=True)
        mean_variance = np.trace(covariance) / len(covariance)
        regularised = covariance + reg * mean_variance * np.eye(len(covariance))
        powers.append(scipy.linalg.fractional_matrix_power(regularised, exponent).real)
    return (source - source.mean(axis=0)) @ powers[0] @ powers[1] + target.mean(axis=0)


@pytest.mark.parametrize("reg", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(("num_source", "num_target", "columns"), [(70, 50, 6), (5, 40, 12), (40, 5, 12), (7, 6, 30)])
def test_equals_its_definition(reg, num_source, num_target, columns):
    rows, domain = make_domains(num_source, num_target, columns)
    rows[domain < 0] *= np.linspace(0.5, 3, columns)
    aligned = CORAL(reg=reg).fit_transform(rows, sample_domain=domain)
    np.testing.assert_allclose(aligned[domain > 0], by_definition(rows, domain, reg), atol=1e-9)
    np.testing.assert_array_equal(aligned[domain < 0], rows[domain < 0])


def test_on_columns_of_variance_one_the_paper_adds_the_identity():
    rows, domain = make_domains(60, 50, 5)
    for side in (domain > 0, domain < 0):
        rows[side] = (rows[side] - rows[side].mean(axis=0)) / rows[side].std(axis=0)
    source, target = np.cov(rows[domain > 0].T, bias=True), np.cov(rows[domain < 0].T, bias=True)
    powers = [
        scipy.linalg.fractional_matrix_power(covariance + np.eye(5), exponent)
        for covariance, exponent in ((source, -0.5), (target, 0.5))
    ]
    aligned = CORAL().fit_transform(rows, sample_domain=domain)
    np.testing.assert_allclose(aligned[domain > 0], rows[domain > 0] @ powers[0] @ powers[1], atol=1e-10)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_agrees_with_skada_up_to_the_target_mean(share, domains):
    mapping = pytest.importorskip("skada._mapping")
    rows, domain = domains
    rows[domain < 0] *= np.linspace(0.5, 3, 6)
    skada_rows = mapping.CORALAdapter(reg=share).fit_transform(rows, sample_domain=domain)
    rows_with_mean = CORAL(reg=share / (1 - share)).fit_transform(rows, sample_domain=domain)
    np.testing.assert_allclose(rows_with_mean - rows[domain < 0].mean(axis=0), skada_rows, atol=1e-10)


def test_is_optimal_transport_if_the_domains_share_their_axes():
    ot = pytest.importorskip("ot")
    rng = np.random.RandomState(0)
    axes = np.linalg.qr(rng.randn(4, 4))[0]
    parts = []
    for scales, shift in (((3, 2, 1, 0.5), 0.0), ((0.5, 4, 1, 2), 2.0)):
        drawn = rng.randn(40, 4)
        white = np.linalg.qr(drawn - drawn.mean(axis=0))[0]  # orthogonal columns of mean zero
        parts.append(white * np.sqrt(40) * scales @ axes.T + shift)
    rows, domain = np.vstack(parts), np.repeat([1, -1], 40)
    transport = ot.da.LinearTransport(reg=1e-14).fit(Xs=parts[0], Xt=parts[1])
    aligned = CORAL(reg=0).fit_transform(rows, sample_domain=domain)
    np.testing.assert_allclose(aligned[:40], transport.transform(Xs=parts[0]), atol=1e-8)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), columns=st.integers(1, 8), scale=st.sampled_from([1e-4, 1.0, 1e5]))
def test_without_regularisation_the_covariances_are_equal(seed, columns, scale):
    rows, domain = make_domains(30, 20, columns, seed=seed)
    rows[domain < 0] = rows[domain < 0] @ np.random.RandomState(seed).randn(columns, columns)
    rows *= scale
    aligned = CORAL(reg=0).fit_transform(rows, sample_domain=domain)
    source, target = aligned[domain > 0], aligned[domain < 0]
    np.testing.assert_allclose(source.mean(axis=0), target.mean(axis=0), atol=1e-9 * scale)
    np.testing.assert_allclose(np.cov(source.T, bias=True), np.cov(target.T, bias=True), atol=1e-8 * scale**2)


@settings(max_examples=10, deadline=None)
@given(scale=st.floats(1e-6, 1e6), reg=st.floats(0, 10))
def test_the_unit_of_the_features_does_not_matter(scale, reg):
    rows, domain = make_domains()
    once = CORAL(reg=reg).fit_transform(rows, sample_domain=domain)
    scaled = CORAL(reg=reg).fit_transform(rows * scale, sample_domain=domain)
    np.testing.assert_allclose(scaled / scale, once, atol=1e-8)


def test_directions_without_variance_are_dropped():
    rows, domain = make_domains(60, 50, 6)
    rows[domain > 0, 5] = 2.0
    aligned = CORAL(reg=0).fit_transform(rows, sample_domain=domain)
    assert np.abs(aligned).max() < 10 * np.abs(rows).max()
