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
    """Clouds around a centre for each class; each class of the target is moved by a vector of its own."""
    rng = np.random.RandomState(seed)
    domain = rng.permutation(np.repeat([1, -1], counts))
    labels = rng.randint(num_classes, size=len(domain))
    centres, moves = spread * rng.randn(num_classes, columns), move * rng.randn(num_classes, columns)
    rows = rng.randn(len(domain), columns) + centres[labels] + (domain < 0)[:, None] * (0.5 + moves[labels])
    return rows, labels, domain


def mmd_matrix(one, other):
    """M of two groups of samples, entry by entry as in the paper."""
    matrix = np.zeros((len(one), len(one)))
    if not one.any() or not other.any():
        return matrix
    for i in range(len(one)):
        for j in range(len(one)):
            if one[i] and one[j]:
                matrix[i, j] = 1 / one.sum() ** 2
            elif other[i] and other[j]:
                matrix[i, j] = 1 / other.sum() ** 2
            elif (one[i] and other[j]) or (other[i] and one[j]):
                matrix[i, j] = -1 / (one.sum() * other.sum())
    return matrix


def naive(features, labels, domain, gamma, dim, iterations):
    """Algorithm 1 of Long et al., with dense n × n matrices; features are samples in columns.

    Returns the aligned samples, of unit variance, and the labels guessed last.
    """
    count, source = features.shape[1], domain > 0
    centring = np.eye(count) - 1 / count
    scatter = features @ centring @ features.T
    guessed = np.full(count, -1)
    for _ in range(iterations):
        matrix = mmd_matrix(source, ~source)
        for label in np.unique(labels[source]):
            matrix += mmd_matrix(source & (labels == label), ~source & (guessed == label))
        penalty = features @ matrix @ features.T + gamma * np.eye(len(features))
        _, vectors = scipy.linalg.eigh(scatter, penalty)
        leading = vectors[:, ::-1][:, :dim]
        leading = leading / np.sqrt(np.einsum("ij,ik,kj->j", leading, scatter, leading))
        aligned = centring @ features.T @ leading * np.sqrt(count)
        nearest = cdist(aligned[~source], aligned[source]).argmin(axis=1)
        guessed = np.where(source, -1, 0)
        guessed[~source] = labels[source][nearest]
    return aligned, guessed[~source]


def same_up_to_signs(ours, theirs, tolerance):
    signs = np.sign((ours * theirs).sum(axis=0))
    np.testing.assert_allclose(ours, theirs * signs, atol=tolerance)


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("gamma", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_is_the_algorithm_of_the_paper(iterations, gamma, kernel):
    rows, labels, domain = class_domains()
    features, width = rows.T, 4.0
    if kernel == "gaussian":
        features = np.exp(-cdist(rows, rows, "sqeuclidean") / (2 * width**2))
    aligned, guessed = naive(features, labels, domain, gamma, 3, iterations)
    masked = np.where(domain > 0, labels, -1)
    fitted = JDA(dim=3, gamma=gamma, kernel=kernel, sigma=width, whiten=True, max_iter=iterations)
    ours = fitted.fit_transform(rows, masked, sample_domain=domain)
    same_up_to_signs(ours, aligned, 1e-8)
    np.testing.assert_array_equal(fitted.pseudo_labels_, guessed)
    assert fitted.n_iter_ <= iterations


def test_stops_where_labels_stay_and_more_iterations_change_nothing():
    rows, labels, domain = class_domains(seed=1, spread=1.5)
    few = JDA(dim=3, max_iter=10).fit(rows, labels, sample_domain=domain)
    assert 2 < few.n_iter_ < 10
    many = JDA(dim=3, max_iter=100).fit(rows, labels, sample_domain=domain)
    np.testing.assert_array_equal(few.transform(rows), many.transform(rows))


@pytest.mark.parametrize("gamma", [0.0, 0.01, 3.0, np.inf, "auto"])
def test_before_any_label_is_guessed_it_is_tca(gamma, domains):
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


def test_guesses_more_target_labels_than_tca_where_classes_move_apart():
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


def test_a_class_that_nobody_is_taken_for_counts_for_nothing():
    rows, labels, domain = class_domains()
    far = np.vstack([rows, rows[:4] + 20])
    known, sides = np.concatenate([labels, [7] * 4]), np.concatenate([domain, [1] * 4])
    aligned, guessed = naive(far.T, known, sides, 1.0, 3, 3)
    fitted = JDA(dim=3, gamma=1.0, whiten=True, max_iter=3).fit(far, known, sample_domain=sides)
    assert 7 not in fitted.pseudo_labels_
    np.testing.assert_array_equal(fitted.pseudo_labels_, guessed)
    same_up_to_signs(fitted.transform(far), aligned, 1e-8)


def test_labels_may_be_words():
    rows, labels, domain = class_domains()
    words = np.array(["cat", "dog", "emu"])[labels]
    fitted = JDA(dim=3).fit(rows, words, sample_domain=domain)
    assert list(fitted.classes_) == ["cat", "dog", "emu"]
    numbered = JDA(dim=3).fit(rows, labels, sample_domain=domain)
    np.testing.assert_array_equal(fitted.pseudo_labels_, fitted.classes_[numbered.pseudo_labels_])


def test_more_columns_than_rows():
    rows, labels, domain = class_domains(columns=200, counts=(20, 15))
    aligned, _ = naive(rows.T, labels, domain, 1.0, 3, 2)
    ours = JDA(dim=3, gamma=1.0, whiten=True, max_iter=2).fit_transform(rows, labels, sample_domain=domain)
    same_up_to_signs(ours, aligned, 1e-7)


def test_components_beyond_the_rank_are_zero():
    rows, labels, domain = class_domains(columns=20, counts=(4, 3))
    with pytest.warns(UserWarning, match="components carry any variance"):
        aligned = JDA(dim=15, gamma=np.inf, whiten=True).fit_transform(rows, labels, sample_domain=domain)
    assert np.linalg.matrix_rank(aligned) == 6
    assert np.abs(aligned).max() < 10


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(1e-4, 1e4), seed=st.integers(0, 100))
def test_gamma_auto_makes_the_unit_and_the_origin_irrelevant(scale, seed):
    rows, labels, domain = class_domains(seed)
    once, moved = (JDA(dim=3).fit(points, labels, sample_domain=domain) for points in (rows, (rows + 3.0) * scale))
    assert moved.gamma_ == pytest.approx(once.gamma_ * scale**2, rel=1e-6)
    same_up_to_signs(moved.transform((rows + 3.0) * scale), once.transform(rows), 1e-5)


def test_sigma_is_known_where_there_is_a_kernel():
    rows, domain = make_domains()
    labels = np.arange(len(rows)) % 2
    with_kernel = JDA(dim=3, kernel="laplace").fit(rows, labels, sample_domain=domain)

    assert with_kernel.sigma_ == median_sigma(torch.from_numpy(rows), "laplace")
    assert not hasattr(JDA(dim=3).fit(rows, labels, sample_domain=domain), "sigma_")
