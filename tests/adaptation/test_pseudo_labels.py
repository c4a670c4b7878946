"""Pseudo-labels: hand-computed cases, a dense neighbour search as reference, and views that disagree."""

import pytest
import torch
from torch.nn.functional import normalize, one_hot

from fedrf.adaptation import pseudo_labels as module
from fedrf.adaptation.pseudo_labels import OwnView, neighbours, pseudo_labels, trust, whiten

CLASSES, EACH = 4, 30


def blobs(spread, columns=12, seed=0):
    """Rows around one centre for each class, in turn, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat(EACH)
    centres = 3 * torch.randn(CLASSES, columns, generator=generator)
    return centres[labels] + spread * torch.randn(len(labels), columns, generator=generator), labels


def predictions(labels, wrong, seed=1):
    """Confident predictions, of which the share `wrong` has a wrong class."""
    generator = torch.Generator().manual_seed(seed)
    shift = torch.randint(1, CLASSES, labels.shape, generator=generator)
    predicted = torch.where(torch.rand(labels.shape, generator=generator) < wrong, (labels + shift) % CLASSES, labels)
    return 0.1 / CLASSES + 0.9 * one_hot(predicted, CLASSES).float()


def accuracy(guessed, labels):
    return float((guessed == labels).float().mean())


def test_labels_follow_the_clusters_and_correct_a_wrong_prediction():
    aligned = normalize(torch.tensor([[1.0, 0.1], [1.0, -0.1], [1.0, 0.0], [0.0, 1.0], [0.1, 1.0]]))
    probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.1, 0.9], [0.2, 0.8]])
    assert pseudo_labels(probabilities, aligned).tolist() == [0, 0, 0, 1, 1]


def test_a_class_without_samples_is_allowed():
    aligned = normalize(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)))
    probabilities = torch.cat([torch.ones(6, 1), torch.zeros(6, 1)], dim=1)
    for own in (None, OwnView.of(aligned, 2), OwnView.of(torch.ones(6, 2), 2)):
        assert pseudo_labels(probabilities, aligned, own).shape == (6,)


def test_five_samples_are_too_few_for_an_own_view():
    assert OwnView.of(torch.rand(5, 3), CLASSES) is None
    assert OwnView.of(torch.rand(6, 3), CLASSES) is not None


def test_the_own_view_corrects_a_blurred_alignment():
    rows, labels = blobs(1.0)
    blurred = normalize(blobs(6.0)[0])
    probabilities = predictions(labels, 0.3)
    views = (None, OwnView.of(rows, CLASSES))
    alone, together = (accuracy(pseudo_labels(probabilities, blurred, own), labels) for own in views)
    assert alone < 0.9
    assert together > 0.97


def test_a_view_without_class_information_is_ignored():
    aligned, labels = blobs(1.0)
    noise = torch.randn(len(labels), 12, generator=torch.Generator().manual_seed(3))
    probabilities = predictions(labels, 0.2)
    assert accuracy(pseudo_labels(probabilities, normalize(aligned), OwnView.of(noise, CLASSES)), labels) > 0.97


def test_trust_is_the_agreement_above_one_half():
    guesses = one_hot(torch.tensor([0, 1, 2, 3])).float()
    one_differs = one_hot(torch.tensor([0, 1, 2, 0]), 4).float()
    assert trust(guesses, guesses) == 1
    assert trust(guesses, one_differs) == 0.5
    assert trust(guesses, guesses[[1, 0, 2, 3]]) == 0
    assert trust(guesses, guesses[[1, 2, 3, 0]]) == 0


def test_a_constant_added_to_all_samples_changes_nothing():
    rows, _ = blobs(1.0)
    view, shifted = OwnView.of(rows, CLASSES), OwnView.of(rows + 100, CLASSES)
    # The sign of a principal direction is arbitrary, so cosines are compared and not rows.
    torch.testing.assert_close(view.rows @ view.rows.T, shifted.rows @ shifted.rows.T, rtol=0, atol=1e-3)
    torch.testing.assert_close(view.rows.norm(dim=1), torch.ones(len(rows)))


@pytest.mark.parametrize("count", [200, 20])  # more rows than columns, and fewer
def test_whitening_is_the_inverse_root_of_the_regularised_covariance(count):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(count, 30, generator=generator, dtype=torch.float64) @ torch.diag(torch.arange(1.0, 31).double())
    covariance = torch.cov(rows.T, correction=0)
    floor = torch.linalg.eigvalsh(covariance).flip(0)[CLASSES - 1]
    centred = rows - rows.mean(0)
    inner = centred @ torch.linalg.inv(covariance + floor * torch.eye(30).double()) @ centred.T
    whitened = whiten(rows, CLASSES)
    torch.testing.assert_close(whitened @ whitened.T, inner)


@pytest.mark.parametrize("count", [24, 32])
def test_few_samples_of_many_possible_classes_keep_their_neighbours(count):
    rows, labels = (part[:count] for part in blobs(0.5, columns=40))
    whitened = normalize(whiten(rows, 31))
    assert (labels[neighbours(whitened)] == labels[:, None]).float().mean() > 0.95


def test_a_matrix_that_is_too_large_has_no_view(monkeypatch):
    monkeypatch.setattr(module, "MAX_EIGEN_SIZE", 7)
    assert OwnView.of(torch.rand(8, 8), CLASSES) is None
    assert OwnView.of(torch.rand(80, 7), CLASSES) is not None


def test_whitening_reveals_classes_behind_large_nuisance_columns():
    rows, labels = blobs(0.3)
    nuisance = 100 * torch.randn(len(rows), 3, generator=torch.Generator().manual_seed(5))
    rows = torch.cat([rows, nuisance], dim=1)
    shares = [
        (labels[neighbours(normalize(values))] == labels[:, None]).float().mean()
        for values in (rows, whiten(rows, CLASSES))
    ]
    assert shares[0] < 0.3
    assert shares[1] > 0.8


@pytest.mark.parametrize("block", [7, 64])
def test_neighbours_are_those_of_a_dense_search_and_never_the_row_itself(block, monkeypatch):
    monkeypatch.setattr(module, "NEIGHBOUR_BLOCK", block)
    values = normalize(torch.randn(64, 5, generator=torch.Generator().manual_seed(0)))
    similarities = values @ values.T
    similarities.fill_diagonal_(-2)
    nearest = neighbours(values)
    assert torch.equal(nearest.sort(1).values, similarities.topk(5, dim=1).indices.sort(1).values)


def test_neighbours_of_many_rows_come_from_evenly_spaced_candidates(monkeypatch):
    monkeypatch.setattr(module, "MAX_CANDIDATES", 10)
    values = normalize(torch.randn(100, 5, generator=torch.Generator().manual_seed(0)))
    nearest = neighbours(values)
    assert set(nearest.flatten().tolist()) <= set(range(0, 100, 10))
    assert not (nearest == torch.arange(100)[:, None]).any()


def test_guesses_become_more_confident_with_each_refinement():
    logits, history = torch.tensor([[8.0, 0.0], [0.0, 4.0]]), []

    def view(guesses):
        history.append(guesses)
        return logits

    last = module._refine(torch.full((2, 2), 0.5), view, first=0.25)
    torch.testing.assert_close(last, logits.softmax(1))
    torch.testing.assert_close(history[1], (0.25 * logits).softmax(1))
    confidence = [float(guesses.max(1).values.min()) for guesses in [*history, last]]
    assert len(history) == module.REFINEMENTS
    assert confidence == sorted(confidence)


@pytest.mark.parametrize("informative", [True, False])
def test_imbalanced_classes_stay_apart(informative):
    """Large classes pull the centres towards them; correct predictions survive with a good and with a bad own view."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.tensor([400, 130, 40, 13])
    labels = torch.arange(4).repeat_interleave(counts)
    rows = torch.randn(4, 12, generator=generator)[labels] + 0.3 * torch.randn(len(labels), 12, generator=generator)
    own = rows if informative else torch.randn(len(labels), 12, generator=generator)
    guessed = pseudo_labels(predictions(labels, 0.0), normalize(rows), OwnView.of(own, 4))
    assert accuracy(guessed, labels) > 0.97
    assert accuracy(guessed[-13:], labels[-13:]) > 0.9


@pytest.mark.parametrize("trusted", [True, False])
def test_soft_refinement_requires_a_trusted_own_view(monkeypatch, trusted):
    aligned, labels = blobs(0.5)
    own = OwnView.of(aligned if trusted else torch.randn(aligned.shape, generator=torch.Generator().manual_seed(2)), 4)
    firsts, refine = [], module._refine

    def spy(guesses, view, first=1.0):
        firsts.append(first)
        return refine(guesses, view, first)

    monkeypatch.setattr(module, "_refine", spy)
    pseudo_labels(predictions(labels, 0.1), normalize(aligned), own)
    assert firsts == [1.0, 1.0, module.FIRST_SHARPNESS if trusted else 1.0]
