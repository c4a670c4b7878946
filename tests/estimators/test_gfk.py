import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from fedrf.estimators import GFK
from tests.conftest import make_domains


def integrated_kernel(source, target, dim, points=24):
    """Return ∫ Φ(t)Φ(t)ᵀ dt by quadrature; the geodesic is given by powers of the rotation between the subspaces.

    The product of the reflections at two subspaces rotates by twice the angles between them.
    """
    projections = [basis.T @ basis for basis in (PCA(dim).fit(part).components_ for part in (source, target))]
    reflections = [2 * projection - np.eye(len(projection)) for projection in projections]
    generator = scipy.linalg.logm(reflections[1] @ reflections[0]) / 2
    nodes, weights = np.polynomial.legendre.leggauss(points)
    rotations = [scipy.linalg.expm((node + 1) / 2 * generator) for node in nodes]
    kernel = sum(
        weight / 2 * rotation @ projections[0] @ rotation.T for weight, rotation in zip(weights, rotations, strict=True)
    )
    np.testing.assert_allclose(rotations[0] @ rotations[0].T, np.eye(len(kernel)), atol=1e-8)
    return kernel.real


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from(
        [(8, 3, 60, 50), (8, 4, 60, 50), (8, 6, 60, 50), (12, 5, 8, 40), (30, 4, 9, 7), (3, 1, 9, 9)]
    ),
)
def test_inner_products_are_the_integral_along_the_geodesic(seed, shape):
    columns, dim, num_source, num_target = shape
    rows, domain = make_domains(num_source, num_target, columns, seed=seed)
    rows[domain < 0] *= np.linspace(1, 2, columns)
    fitted = GFK(dim=dim).fit(rows, sample_domain=domain)
    if fitted.angles_.max() > 1.55:
        return  # at a right angle there are two geodesics
    kernel = integrated_kernel(rows[domain > 0], rows[domain < 0], dim)
    coordinates = fitted.transform(rows)
    assert coordinates.shape == (len(rows), 2 * dim)
    np.testing.assert_allclose(coordinates @ coordinates.T, rows @ kernel @ rows.T, atol=1e-7)


@pytest.mark.parametrize("angle", [1e-12, 1e-8, 1e-5, 1e-3, 9.9e-3, 1.01e-2, 0.5, 1.5, np.pi / 2])
def test_two_lines_at_any_angle(angle):
    along, across = np.array([1.0, 0, 0]), np.array([0, 1.0, 0])
    line = np.linspace(-1, 1, 21)[:, None]
    source, target = line * along, line * (np.cos(angle) * along + np.sin(angle) * across)
    rows, domain = np.vstack([source, target]), np.repeat([1, -1], 21)
    fitted = GFK(dim=1).fit(rows, sample_domain=domain)
    assert fitted.angles_[0] == pytest.approx(angle, rel=1e-6, abs=1e-15)
    half, quarter = 0.5 + np.sin(2 * angle) / (4 * angle), np.sin(angle) ** 2 / (2 * angle)
    expected = np.array([[half, quarter, 0], [quarter, 1 - half, 0], [0, 0, 0]])
    np.testing.assert_allclose(fitted.factor_ @ fitted.factor_.T, expected, atol=1e-14 + 1e-9 * angle)


def test_angles_are_those_between_the_subspaces(domains):
    rows, domain = domains
    bases = [PCA(3).fit(rows[side]).components_.T for side in (domain > 0, domain < 0)]
    angles = GFK(dim=3).fit(rows, sample_domain=domain).angles_
    np.testing.assert_allclose(angles, np.sort(scipy.linalg.subspace_angles(*bases)), atol=1e-12)


def test_equal_subspaces_give_the_projection_onto_them(domains):
    rows, _ = domains
    twice, domain = np.vstack([rows, rows]), np.repeat([1, -1], len(rows))
    factor = GFK(dim=3).fit(twice, sample_domain=domain).factor_
    axes = PCA(3).fit(rows).components_
    np.testing.assert_allclose(factor @ factor.T, axes.T @ axes, atol=1e-12)


def test_the_whole_space_gives_plain_inner_products(domains):
    rows, domain = domains
    coordinates = GFK(dim=6).fit_transform(rows, sample_domain=domain)
    np.testing.assert_allclose(coordinates @ coordinates.T, rows @ rows.T, atol=1e-10)


def test_the_domains_can_be_swapped(domains):
    rows, domain = domains
    forward, backward = (GFK(dim=3).fit(rows, sample_domain=d).factor_ for d in (domain, -domain))
    np.testing.assert_allclose(forward @ forward.T, backward @ backward.T, atol=1e-12)


def test_columns_of_the_factor_are_orthogonal(domains):
    factor = GFK(dim=3).fit(domains[0], sample_domain=domains[1]).factor_
    products = factor.T @ factor
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-12)
    assert np.trace(products) == pytest.approx(3)
