import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fedrf.estimators import JDA, TCA
from fedrf.tca.random_features import median_sigma
from tests.conftest import make_domains


def class_domains(seed=0, num_classes=3, columns=5, counts=(60, 45), spread=2.5, move=1.0):
    """Return samples around one centre per class; each class of the target is shifted by a different vector."""
    rng = np.random.RandomState(seed)
    domain = rng.permutation(np.repeat([1, -1], counts))
    labels = rng.randint(num_classes, size=len(domain))
    centres, moves = spread * rng.randn(num_classes, columns), move * rng.randn(num_classes, columns)
    rows = rng.randn(len(domain), columns) + centres[labels] + (domain < 0)[:, None] * (0.5 + moves[labels])
    return rows, labels, domain


def mmd_matrix(first, second):
    """Return M of two groups of samples, entry by entry as in the paper."""
    matrix = np.zeros((len(first), len(first)))
    if not first.any() or not second.any():
        return matrix
    for i in range(len(first)):
        for j in range(len(first)):
            if first[i] and first[j]:
                matrix[i, j] = 1 / first.sum() ** 2
            elif second[i] and second[j]:
                matrix[i, j] = 1 / second.sum() ** 2
            elif (first[i] and second[j]) or (second[i] and first[j]):
                matrix[i, j] = -1 / (first.sum() * second.sum())
    return matrix


def naive(features, labels, domain, gamma, dim, iterations):
    """Run algorithm 1 of Long et al. with dense n × n matrices; features are samples in columns.

    Return the aligned samples, of unit variance, and the last pseudo-labels.
    """
    count, source = features.shape[1], domain > 0
    centring = np.eye(count) - 1 / count
    scatter = features @ centring @ features.T
    pseudo_labels = np.full(count, -1)
    for _ in range(iterations):
        matrix = mmd_matrix(source, ~source)
        for label in np.unique(labels[source]):
            matrix += mmd_matrix(source & (labels == label), ~source & (pseudo_labels == label))
        penalty = features @ matrix @ features.T + gamma * np.eye(len(features))
        _, vectors = scipy.linalg.eigh(scatter, penalty)
        leading = vectors[:, ::-1][:, :dim]
        leading = leading / np.sqrt(np.einsum("ij,ik,kj->j", leading, scatter, leading))
        aligned = centring @ features.T @ leading * np.sqrt(count)
        nearest = cdist(aligned[~source], aligned[source]).argmin(axis=1)
        pseudo_labels = np.where(source, -1, 0)
        pseudo_labels[~source] = labels[source][nearest]
    return aligned, pseudo_labels[~source]


def assert_same_up_to_signs(aligned, expected, tolerance):
    signs = np.sign((aligned * expected).sum(axis=0))
    np.testing.assert_allclose(aligned, expected * signs, atol=tolerance)


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("gamma", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_is_the_algorithm_of_the_paper(iterations, gamma, kernel):
    rows, labels, domain = class_domains()
    features, width = rows.T, 4.0
    if kernel == "gaussian":
        features = np.exp(-cdist(rows, rows, "sqeuclidean") / (2 * width**2))
    expected, pseudo_labels = naive(features, labels, domain, gamma, 3, iterations)
    masked = np.where(domain > 0, labels, -1)
    fitted = JDA(dim=3, gamma=gamma, kernel=kernel, sigma=width, whiten=True, max_iter=iterations)
    aligned = fitted.fit_transform(rows, masked, sample_domain=domain)
    assert_same_up_to_signs(aligned, expected, 1e-8)
    np.testing.assert_array_equal(fitted.pseudo_labels_, pseudo_labels)
    assert fitted.n_iter_ <= iterations


def test_stops_when_pseudo_labels_no_longer_change():
    rows, labels, domain = class_domains(seed=1, spread=1.5)
    few = JDA(dim=3, max_iter=10).fit(rows, labels, sample_domain=domain)
    assert 2 < few.n_iter_ < 10
    many = JDA(dim=3, max_iter=100).fit(rows, labels, sample_domain=domain)
    np.testing.assert_array_equal(few.transform(rows), many.transform(rows))


@pytest.mark.parametrize("gamma", [0.0, 0.01, 3.0, np.inf, "auto"])
def test_the_first_iteration_is_tca(gamma, domains):
    rows, domain = domains
    labels = np.arange(len(rows)) % 2
    first = JDA(dim=3, gamma=gamma, kernel="gaussian", max_iter=1).fit(rows, labels, sample_domain=domain)
    tca = TCA(dim=3, gamma=gamma).fit(rows, sample_domain=domain)
    assert first.gamma_ == pytest.approx(tca.gamma_)
    assert first.sigma_ == tca.sigma_
    np.testing.assert_allclose(first.eigenvalues_, tca.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(first.transform(rows), tca.transform(rows), atol=1e-7)


def test_without_a_penalty_all_class_means_coincide():
    rows, labels, domain = class_domains(columns=8)
    fitted = JDA(dim=3, gamma=0.0).fit(rows, labels, sample_domain=domain)
    aligned = fitted.transform(rows)
    before = JDA(dim=3, gamma=0.0, max_iter=fitted.n_iter_ - 1).fit(rows, labels, sample_domain=domain)
    for label in range(3):
        source = aligned[domain > 0][labels[domain > 0] == label]
        target = aligned[domain < 0][before.pseudo_labels_ == label]
        np.testing.assert_allclose(source.mean(axis=0), target.mean(axis=0), atol=1e-8)


def test_pseudo_labels_are_more_accurate_than_those_of_tca_if_classes_shift_differently():
    gains = []
    for seed in range(5):
        rows, labels, domain = class_domains(seed, 5, 10, (150, 150), spread=1.5, move=1.5)
        truth = labels[domain < 0]
        first, last = (
            np.mean(JDA(dim=5, max_iter=n).fit(rows, labels, sample_domain=domain).pseudo_labels_ == truth)
            for n in (1, 10)
        )
        gains.append(last - first)
    assert np.mean(gains) > 0.03


def test_a_class_without_pseudo_labels_is_ignored():
    rows, labels, domain = class_domains()
    far = np.vstack([rows, rows[:4] + 20])
    all_labels, all_domains = np.concatenate([labels, [7] * 4]), np.concatenate([domain, [1] * 4])
    aligned, pseudo_labels = naive(far.T, all_labels, all_domains, 1.0, 3, 3)
    fitted = JDA(dim=3, gamma=1.0, whiten=True, max_iter=3).fit(far, all_labels, sample_domain=all_domains)
    assert 7 not in fitted.pseudo_labels_
    np.testing.assert_array_equal(fitted.pseudo_labels_, pseudo_labels)
    assert_same_up_to_signs(fitted.transform(far), aligned, 1e-8)


def test_labels_may_be_strings():
    rows, labels, domain = class_domains()
    words = np.array(["cat", "dog", "emu"])[labels]
    fitted = JDA(dim=3).fit(rows, words, sample_domain=domain)
    assert list(fitted.classes_) == ["cat", "dog", "emu"]
    numbered = JDA(dim=3).fit(rows, labels, sample_domain=domain)
    np.testing.assert_array_equal(fitted.pseudo_labels_, fitted.classes_[numbered.pseudo_labels_])


def test_more_columns_than_rows():
    rows, labels, domain = class_domains(columns=200, counts=(20, 15))
    expected, _ = naive(rows.T, labels, domain, 1.0, 3, 2)
    aligned = JDA(dim=3, gamma=1.0, whiten=True, max_iter=2).fit_transform(rows, labels, sample_domain=domain)
    assert_same_up_to_signs(aligned, expected, 1e-7)


def test_components_beyond_the_rank_are_zero():
    rows, labels, domain = class_domains(columns=20, counts=(4, 3))
    with pytest.warns(UserWarning, match="components carry any variance"):
        aligned = JDA(dim=15, gamma=np.inf, whiten=True).fit_transform(rows, labels, sample_domain=domain)
    assert np.linalg.matrix_rank(aligned) == 6
    assert np.abs(aligned).max() < 10


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(1e-4, 1e4), seed=st.integers(0, 100))
def test_with_gamma_auto_the_unit_and_the_origin_do_not_matter(scale, seed):
    rows, labels, domain = class_domains(seed)
    once, moved = (JDA(dim=3).fit(points, labels, sample_domain=domain) for points in (rows, (rows + 3.0) * scale))
    assert moved.gamma_ == pytest.approx(once.gamma_ * scale**2, rel=1e-6)
    assert_same_up_to_signs(moved.transform((rows + 3.0) * scale), once.transform(rows), 1e-5)


def test_only_non_linear_kernels_have_sigma():
    rows, domain = make_domains()
    labels = np.arange(len(rows)) % 2
    laplace = JDA(dim=3, kernel="laplace").fit(rows, labels, sample_domain=domain)
    assert laplace.sigma_ == median_sigma(torch.from_numpy(rows), "laplace")
    assert not hasattr(JDA(dim=3).fit(rows, labels, sample_domain=domain), "sigma_")
