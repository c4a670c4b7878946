import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from fedrf.estimators import DaNN
from fedrf.estimators.dann import Layer, squared_mmd
from fedrf.tca.random_features import median_sigma


def double_sum(x, y, width):
    """Return the squared MMD, computed pair by pair."""

    def mean_kernel(first, second):
        return np.mean([[np.exp(-np.square(a - b).sum() / (2 * width**2)) for b in second] for a in first])

    return mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    width=st.floats(0.1, 10),
    offset=st.sampled_from([0.0, 1e4]),
)
def test_mmd_is_the_double_sum(seed, sizes, width, offset):
    rng = np.random.RandomState(seed)
    x, y = rng.randn(sizes[0], 4) + offset, rng.randn(sizes[1], 4) + offset + 0.5
    mmd = squared_mmd(torch.from_numpy(x), torch.from_numpy(y), width).item()
    assert mmd == pytest.approx(double_sum(x, y, width), abs=1e-8)


def test_the_median_is_that_of_both_samples_and_has_no_gradient():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 9, 4, generator=generator, dtype=torch.float64).requires_grad_()
    width = median_sigma(torch.cat([x, y]).detach())
    by_median, fixed = (squared_mmd(x, y, sigma) for sigma in ("median", width))
    assert by_median.item() == fixed.item()
    for gradient, expected in zip(
        torch.autograd.grad(by_median, [x, y]), torch.autograd.grad(fixed, [x, y]), strict=True
    ):
        np.testing.assert_array_equal(gradient.numpy(), expected.numpy())


def test_gradients_of_the_penalty_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64)
    layer = Layer.draw(5, 3, generator)

    def penalty(weights, bias):
        hidden = Layer(weights, bias)
        return squared_mmd(hidden(x), hidden(y + 1), 1.5)

    assert torch.autograd.gradcheck(penalty, tuple(layer))


def blobs(seed=0, counts=(120, 120), shift=5.0):
    """Return two classes that differ along axis 0; the target is shifted along axis 1, independently of the class."""
    rng = np.random.RandomState(seed)
    domain = np.repeat([1, -1], counts)
    labels = rng.randint(2, size=len(domain))
    rows = rng.randn(len(domain), 4)
    rows[:, 0] += 3 * labels
    # In the source, axis 1 depends on the class too: a network that relies on it fails on the target.
    rows[:, 1] += np.where(domain > 0, 3 * labels, shift)
    return rows, labels, domain


def target_accuracy(estimator, rows, labels, domain):
    aligned = estimator.fit_transform(rows, np.where(domain > 0, labels, -1), sample_domain=domain)
    classifier = LogisticRegression().fit(aligned[domain > 0], labels[domain > 0])
    return classifier.score(aligned[domain < 0], labels[domain < 0])


def test_learns_the_source():
    rows, labels, domain = blobs()
    fitted = DaNN(dim=16, steps=200, learning_rate=5e-3, weight=0.1).fit(rows, labels, sample_domain=domain)
    error, _ = fitted.losses_.T
    assert fitted.losses_.shape == (200, 2)
    assert error[-10:].mean() < 0.3 * error[0]
    source = torch.from_numpy(fitted.transform(rows[domain > 0]))
    assert np.mean(fitted.output_(source).argmax(dim=1).numpy() == labels[domain > 0]) > 0.95


def test_the_penalty_aligns_the_domains_and_improves_target_accuracy():
    rows, labels, domain = blobs()
    distances, accuracies = [], []
    for weight in (0.0, 5.0):
        estimator = DaNN(dim=16, steps=200, learning_rate=5e-3, weight=weight)
        accuracies.append(target_accuracy(estimator, rows, labels, domain))
        aligned = estimator.transform(rows)
        difference = aligned[domain > 0].mean(axis=0) - aligned[domain < 0].mean(axis=0)
        distances.append(np.square(difference).sum() / aligned.var(axis=0).sum())
    assert distances[1] < 0.5 * distances[0]
    assert accuracies[1] > accuracies[0] + 0.2


def test_the_first_losses_are_those_of_the_initial_weights():
    rows, labels, domain = blobs(counts=(30, 20))
    fitted = DaNN(dim=5, steps=1, learning_rate=0.0, sigma=2.0).fit(rows, labels, sample_domain=domain)
    hidden = rows @ fitted.hidden_.weights.numpy() + fitted.hidden_.bias.numpy()
    error, discrepancy = fitted.losses_[0]
    assert discrepancy == pytest.approx(double_sum(hidden[domain > 0], hidden[domain < 0], 2.0))
    scores = np.maximum(hidden[domain > 0], 0) @ fitted.output_.weights.numpy() + fitted.output_.bias.numpy()
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    assert error == pytest.approx(-scores[np.arange(30), labels[domain > 0]].mean())
    np.testing.assert_allclose(fitted.transform(rows), np.maximum(hidden, 0), atol=1e-12)


def test_the_seed_determines_the_bits_and_the_global_generator_does_not_change():
    rows, labels, domain = blobs(counts=(50, 40))
    settings = {"dim": 6, "steps": 15, "batch_size": 16}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = DaNN(**settings).fit_transform(rows, labels, sample_domain=domain)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    np.testing.assert_array_equal(DaNN(**settings).fit_transform(rows, labels, sample_domain=domain), first)
    other = DaNN(**settings, random_state=1).fit_transform(rows, labels, sample_domain=domain)
    assert not np.array_equal(other, first)


def test_learns_inside_no_grad():
    rows, labels, domain = blobs(counts=(20, 20))
    expected = DaNN(dim=4, steps=5).fit_transform(rows, labels, sample_domain=domain)
    with torch.no_grad():
        np.testing.assert_array_equal(DaNN(dim=4, steps=5).fit_transform(rows, labels, sample_domain=domain), expected)


@settings(max_examples=8, deadline=None)
@given(scale=st.floats(1e-3, 1e3), offset=st.floats(-100, 100))
def test_the_unit_and_the_origin_of_the_features_do_not_matter(scale, offset):
    rows, labels, domain = blobs(counts=(30, 30))
    once = DaNN(dim=4, steps=10).fit_transform(rows, labels, sample_domain=domain)
    moved = DaNN(dim=4, steps=10).fit_transform((rows + offset) * scale, labels, sample_domain=domain)
    np.testing.assert_allclose(moved, once, atol=1e-7)


def test_batches_of_one_row():
    rows, labels, domain = blobs(counts=(20, 20))
    aligned = DaNN(dim=4, steps=20, batch_size=1).fit_transform(rows, labels, sample_domain=domain)
    assert np.isfinite(aligned).all()
    same = torch.ones(1, 3, dtype=torch.float64)
    assert squared_mmd(same, same, "median").item() == 0
