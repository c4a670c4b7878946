import numpy as np
import pytest
from sklearn.decomposition import PCA

from fedrf.estimators import SubspaceAlignment
from tests.conftest import make_domains

SHAPES = [(70, 50, 6, 3), (10, 40, 15, 5), (40, 9, 15, 8), (8, 7, 30, 6)]


@pytest.mark.parametrize(("num_source", "num_target", "columns", "dim"), SHAPES)
def test_agrees_with_skada_up_to_signs(num_source, num_target, columns, dim):
    subspace = pytest.importorskip("skada._subspace")
    rows, domain = make_domains(num_source, num_target, columns)
    rows *= np.linspace(1, 3, columns)
    expected = subspace.SubspaceAlignmentAdapter(n_components=dim, random_state=0).fit_transform(
        rows, sample_domain=domain
    )
    aligned = SubspaceAlignment(dim=dim).fit_transform(rows, sample_domain=domain)
    signs = np.sign((aligned * expected).sum(axis=0))
    np.testing.assert_allclose(aligned, expected * signs, atol=1e-9)


def test_the_axes_are_principal_and_the_rotation_is_optimal(domains):
    rows, domain = domains
    fitted = SubspaceAlignment(dim=2).fit(rows, sample_domain=domain)
    for axes, side in ((fitted.source_, domain > 0), (fitted.target_, domain < 0)):
        reference = PCA(2).fit(rows[side])
        np.testing.assert_allclose(np.abs(reference.components_ @ axes.axes.numpy()), np.eye(2), atol=1e-10)
    source, target = fitted.source_.axes.numpy(), fitted.target_.axes.numpy()
    best = np.linalg.lstsq(source, target, rcond=None)[0]
    at_origin, at_rows = (
        fitted.transform(points, sample_domain=np.ones(len(points))) for points in (np.zeros((1, 6)), rows)
    )
    np.testing.assert_allclose(at_rows - at_origin, rows @ source @ best, atol=1e-10)


def test_equal_domains_stay_equal():
    rows, _ = make_domains()
    twice, domain = np.vstack([rows, rows]), np.repeat([1, -1], len(rows))
    aligned = SubspaceAlignment(dim=4).fit_transform(twice, sample_domain=domain)
    np.testing.assert_allclose(aligned[domain > 0], aligned[domain < 0], atol=1e-12)
