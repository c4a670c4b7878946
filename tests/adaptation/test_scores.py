"""Scores compared with skada and with hand-computed values; density ratios compared with exact ones."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy

from fedrf.adaptation.information import entropy
from fedrf.adaptation.scores import (
    RIDGES,
    deep_embedded_validation,
    density,
    evenly,
    importance_weights,
    nuclear_norm,
    weighted_accuracy,
)
from fedrf.tca.random_features import RandomFourierFeatures, median_sigma

skada = pytest.importorskip("skada")
from skada import make_da_pipeline  # noqa: E402
from skada.datasets import make_shifted_datasets  # noqa: E402
from skada.metrics import DeepEmbeddedValidation, PredictionEntropyScorer, SoftNeighborhoodDensity  # noqa: E402


class InputAsPrediction(ClassifierMixin, BaseEstimator):
    """Returns its input as class probabilities."""

    def predict_proba(self, X, **_):
        return X


def random_predictions(count, classes=5, seed=0, sharpness=3.0):
    logits = sharpness * torch.randn(count, classes, generator=torch.Generator().manual_seed(seed)).double()
    return logits.softmax(1)


def by_skada(scorer, probabilities):
    """skada's score of a target's predictions; it requires source samples too, but ignores them."""
    rows = torch.cat([probabilities, probabilities[:2]]).numpy()
    domain = np.r_[np.full(len(probabilities), -2), 1, 1]
    return scorer._score(None, InputAsPrediction(), rows, np.arange(len(rows)) % 2, sample_domain=domain)


@pytest.mark.parametrize("count", [2, 37, 600, 1500])  # one block, and several
def test_density_equals_skadas(count):
    probabilities = random_predictions(count)
    expected = by_skada(SoftNeighborhoodDensity(), probabilities)  # with e^-40 of the diagonal
    assert float(density(probabilities)) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_entropy_equals_skadas():
    probabilities = random_predictions(50)
    # skada takes the mean over samples and classes, and its sign is such that higher is better.
    expected = -5 * by_skada(PredictionEntropyScorer(), probabilities)
    assert float(entropy(probabilities).mean()) == pytest.approx(expected, rel=1e-5)


def test_density_by_hand():
    """Two clusters of 4 and 2 one-hot predictions: the neighbours are the other samples of the cluster, equally."""
    probabilities = torch.eye(3)[[0, 0, 0, 0, 1, 1]].double()
    assert float(density(probabilities)) == pytest.approx(4 / 6 * np.log(3), rel=1e-6)


def test_many_samples_are_subsampled_evenly():
    probabilities = random_predictions(4096)
    assert float(density(probabilities)) == float(density(probabilities[evenly(4096)]))
    assert float(density(probabilities)) != float(density(probabilities[:2048]))
    assert evenly(5).tolist() == [0, 1, 2, 3, 4]
    assert np.diff(evenly(60_000)).min() >= 29
    assert (evenly(60_000)[0], evenly(60_000)[-1], len(evenly(60_000))) == (0, 59_999, 2048)


def test_nuclear_norm_is_that_of_numpy_and_1_for_confident_and_diverse_predictions():
    probabilities = random_predictions(40)
    expected = np.linalg.norm(probabilities.numpy(), "nuc") / np.sqrt(40 * 5)
    assert nuclear_norm(probabilities) == pytest.approx(expected)
    assert nuclear_norm(torch.eye(4).repeat(3, 1)) == pytest.approx(1)
    assert nuclear_norm(torch.eye(4)[:1].repeat(12, 1)) == pytest.approx(0.5)  # all in one class
    assert np.isnan(nuclear_norm(torch.full((3, 2), torch.nan)))


def test_weighted_accuracy_by_hand():
    assert weighted_accuracy(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 1.0])) == 0.75
    assert weighted_accuracy(torch.tensor([1.0, 0.0]), torch.zeros(2)) == 0.0


def test_deep_embedded_validation_equals_skadas():
    X, y, domain = make_shifted_datasets(20, 20, shift="covariate_shift", random_state=0)
    pipeline = make_da_pipeline(LogisticRegression()).fit(X, y.copy(), sample_domain=domain)
    recorded = {}

    def losses(labels, probabilities):
        """Cross-entropy as a column, because skada multiplies it by a column of weights."""
        recorded["losses"] = cross_entropy(
            torch.log(torch.tensor(probabilities)), torch.tensor(labels), reduction="none"
        )
        return recorded["losses"].numpy()[:, None]

    scorer = DeepEmbeddedValidation(loss_func=losses, random_state=0)
    expected = -scorer._score(None, pipeline, X, y, sample_domain=domain)
    source = domain > 0
    training, held_out = train_test_split(X[source], test_size=0.33, random_state=np.random.RandomState(0))
    chances = scorer.domain_classifier_.predict_proba(held_out)
    weights = torch.tensor(len(training) / (~source).sum() * chances[:, 0] / chances[:, 1])
    assert weights.std() > 0.1
    assert float(deep_embedded_validation(recorded["losses"], weights)) == pytest.approx(expected, rel=1e-9)


def test_equal_weights_give_the_mean_loss():
    losses = torch.tensor([0.5, 1.0, 3.0])
    assert float(deep_embedded_validation(losses, torch.ones(3))) == 1.5


def test_the_control_variate_removes_the_noise_of_the_weights():
    """The risk of a constant loss does not depend on the weights."""
    weights = torch.rand(20, generator=torch.Generator().manual_seed(0)) * 3
    assert float(deep_embedded_validation(torch.full((20,), 0.7), weights)) == pytest.approx(0.7, rel=1e-5)


@pytest.mark.parametrize(("columns", "shift", "correlation"), [(2, 1.0, 0.9), (5, 1.0, 0.9), (10, 0.7, 0.85)])
def test_density_ratios_of_two_gaussians(columns, shift, correlation):
    random = np.random.RandomState(0)
    source, target = (torch.from_numpy(random.randn(2000, columns)).float() for _ in range(2))
    target[:, 0] += shift
    features = RandomFourierFeatures(columns, 300, median_sigma(source))
    training, held_out = features(source)[:1500], features(source)[1500:]
    weights = importance_weights(training, held_out, features(target).mean(0)).numpy()
    centre = shift * np.eye(columns)[0]
    exact = np.exp(
        multivariate_normal(centre).logpdf(source[1500:]) - multivariate_normal(0 * centre).logpdf(source[1500:])
    )
    assert np.corrcoef(weights, exact)[0, 1] > correlation
    assert weights.mean() == pytest.approx(1, abs=0.1)
    assert np.mean((weights - exact) ** 2) < np.var(exact) / 2
    assert weights.min() >= 0


def test_the_ridge_is_chosen_by_leave_one_out_cross_validation():
    """The reference solves the least-squares problem, constant included, once without each sample."""
    random = np.random.RandomState(0)
    source, target = (torch.from_numpy(random.randn(60, 3) + shift).float() for shift in (0, 0.5))
    features = RandomFourierFeatures(3, 8, 1.5)
    training, held_out, target_mean = features(source[:40]), features(source[40:]), features(target).mean(0)

    def with_constant(values):
        return np.c_[np.ones(len(values)), values.double().numpy()]

    rows, expectation = with_constant(training), with_constant(target_mean[None])[0]
    variance = float(training.double().var(0, correction=0).sum())

    def solve(samples, ridge):
        return np.linalg.solve(samples.T @ samples / len(samples) + np.diag([0.0, *[ridge] * 16]), expectation)

    def risk(ridge):
        thetas = [solve(np.delete(rows, index, axis=0), ridge * 40 / 39) for index in range(40)]
        return np.mean([(row @ theta) ** 2 / 2 - expectation @ theta for row, theta in zip(rows, thetas, strict=True)])

    theta = solve(rows, min((float(share) * variance for share in RIDGES), key=risk))
    expected = np.maximum(with_constant(held_out) @ theta, 0) / np.maximum(rows @ theta, 0).mean()
    np.testing.assert_allclose(importance_weights(training, held_out, target_mean).numpy(), expected, rtol=1e-6)


def test_equal_domains_have_equal_weights_and_identical_samples_finite_ones():
    values = torch.from_numpy(np.random.RandomState(0).randn(900, 3)).float()
    features = RandomFourierFeatures(3, 100, 1.0)(values)
    weights = importance_weights(features[:300], features[300:600], features[:300].mean(0))
    torch.testing.assert_close(weights, torch.ones_like(weights), rtol=0, atol=1e-3)
    other_samples = importance_weights(features[:300], features[300:600], features[600:].mean(0))
    assert other_samples.std() < 0.5
    identical = importance_weights(features[:1].expand(9, -1), features[:1].expand(4, -1), features[5])
    assert identical.isfinite().all()


def test_deep_embedded_validation_is_closer_to_the_target_risk_than_validation():
    """The loss grows in the direction of the target."""
    random = np.random.RandomState(1)
    source, target = (torch.from_numpy(random.randn(3000, 3)).float() for _ in range(2))
    target[:, 0] += 1
    features = RandomFourierFeatures(3, 200, median_sigma(source))
    weights = importance_weights(features(source[:2000]), features(source[2000:]), features(target).mean(0))
    losses, truth = source[2000:, 0].sigmoid().double(), float(target[:, 0].sigmoid().mean())
    estimate = float(deep_embedded_validation(losses, weights))
    assert abs(estimate - truth) < abs(float(losses.mean()) - truth) / 3
