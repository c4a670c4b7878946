"""Pseudo-labels: by hand, against a dense search, and where views disagree."""

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
    """Confident predictions, a share of which is of a wrong class."""
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


def test_a_class_that_nobody_has_breaks_nothing():
    aligned = normalize(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)))
    probabilities = torch.cat([torch.ones(6, 1), torch.zeros(6, 1)], dim=1)
    for own in (None, OwnView.of(aligned, 2), OwnView.of(torch.ones(6, 2), 2)):
        assert pseudo_labels(probabilities, aligned, own).shape == (6,)


def test_a_handful_of_samples_has_no_view_of_its_own():
    assert OwnView.of(torch.rand(5, 3), CLASSES) is None
    assert OwnView.of(torch.rand(6, 3), CLASSES) is not None


def test_the_own_view_mends_what_alignment_has_blurred():
    rows, labels = blobs(1.0)
    blurred = normalize(blobs(6.0)[0])
    probabilities = predictions(labels, 0.3)
    views = (None, OwnView.of(rows, CLASSES))
    alone, together = (accuracy(pseudo_labels(probabilities, blurred, own), labels) for own in views)
    assert alone < 0.9
    assert together > 0.97


def test_a_view_that_knows_nothing_of_the_classes_is_not_heard():
    aligned, labels = blobs(1.0)
    noise = torch.randn(len(labels), 12, generator=torch.Generator().manual_seed(3))
    probabilities = predictions(labels, 0.2)
    assert accuracy(pseudo_labels(probabilities, normalize(aligned), OwnView.of(noise, CLASSES)), labels) > 0.97


def test_trust_is_how_far_agreement_is_above_one_half():
    ours = one_hot(torch.tensor([0, 1, 2, 3])).float()
    theirs = one_hot(torch.tensor([0, 1, 2, 0]), 4).float()
    assert trust(ours, ours) == 1
    assert trust(ours, theirs) == 0.5
    assert trust(ours, ours[[1, 0, 2, 3]]) == 0
    assert trust(ours, ours[[1, 2, 3, 0]]) == 0


def test_what_all_samples_have_in_common_does_not_count():
    rows, _ = blobs(1.0)
    ours, moved = OwnView.of(rows, CLASSES), OwnView.of(rows + 100, CLASSES)
    # Principal directions have no sign, so cosines are compared and not rows.
    torch.testing.assert_close(ours.rows @ ours.rows.T, moved.rows @ moved.rows.T, rtol=0, atol=1e-3)
    torch.testing.assert_close(ours.rows.norm(dim=1), torch.ones(len(rows)))


@pytest.mark.parametrize("count", [200, 20])  # more rows than columns, and fewer
def test_whitening_is_the_root_of_the_inverse_of_covariance_and_floor(count):
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


def test_what_is_too_much_to_decompose_has_no_view(monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 7)
    assert OwnView.of(torch.rand(8, 8), CLASSES) is None
    assert OwnView.of(torch.rand(80, 7), CLASSES) is not None


def test_whitening_finds_classes_behind_what_is_large_and_says_nothing():
    rows, labels = blobs(0.3)
    nuisance = 100 * torch.randn(len(rows), 3, generator=torch.Generator().manual_seed(5))
    rows = torch.cat([rows, nuisance], dim=1)
    shares = [
        (labels[neighbours(normalize(seen))] == labels[:, None]).float().mean()
        for seen in (rows, whiten(rows, CLASSES))
    ]
    assert shares[0] < 0.3
    assert shares[1] > 0.8


@pytest.mark.parametrize("rows", [7, 64])
def test_neighbours_are_those_of_a_dense_search_and_never_the_row_itself(rows, monkeypatch):
    monkeypatch.setattr(module, "ROWS", rows)
    values = normalize(torch.randn(64, 5, generator=torch.Generator().manual_seed(0)))
    similar = values @ values.T
    similar.fill_diagonal_(-2)
    found = neighbours(values)
    assert torch.equal(found.sort(1).values, similar.topk(5, dim=1).indices.sort(1).values)


def test_many_rows_find_their_neighbours_among_evenly_chosen_ones(monkeypatch):
    monkeypatch.setattr(module, "CANDIDATES", 10)
    values = normalize(torch.randn(100, 5, generator=torch.Generator().manual_seed(0)))
    found = neighbours(values)
    assert set(found.flatten().tolist()) <= set(range(0, 100, 10))
    assert not (found == torch.arange(100)[:, None]).any()


def test_guesses_are_bold_only_in_the_end():
    logits, heard = torch.tensor([[8.0, 0.0], [0.0, 4.0]]), []

    def opinion(guesses):
        heard.append(guesses)
        return logits

    last = module._refine(torch.full((2, 2), 0.5), opinion, first=0.25)
    torch.testing.assert_close(last, logits.softmax(1))
    torch.testing.assert_close(heard[1], (0.25 * logits).softmax(1))
    confidence = [float(guesses.max(1).values.min()) for guesses in [*heard, last]]
    assert len(heard) == module.REFINEMENTS
    assert confidence == sorted(confidence)


@pytest.mark.parametrize("knows", [True, False])
def test_unequal_classes_stay_apart(knows):
    """A right classifier is not overruled by centres that large classes draw to them, with a good own view or none."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.tensor([400, 130, 40, 13])
    labels = torch.arange(4).repeat_interleave(counts)
    rows = torch.randn(4, 12, generator=generator)[labels] + 0.3 * torch.randn(len(labels), 12, generator=generator)
    own = rows if knows else torch.randn(len(labels), 12, generator=generator)
    guessed = pseudo_labels(predictions(labels, 0.0), normalize(rows), OwnView.of(own, 4))
    assert accuracy(guessed, labels) > 0.97
    assert accuracy(guessed[-13:], labels[-13:]) > 0.9


@pytest.mark.parametrize("trusted", [True, False])
def test_softness_needs_a_view_that_is_trusted(monkeypatch, trusted):
    aligned, labels = blobs(0.5)
    own = OwnView.of(aligned if trusted else torch.randn(aligned.shape, generator=torch.Generator().manual_seed(2)), 4)
    firsts, refine = [], module._refine

    def spied(guesses, opinion, first=1.0):
        firsts.append(first)
        return refine(guesses, opinion, first)

    monkeypatch.setattr(module, "_refine", spied)
    pseudo_labels(predictions(labels, 0.1), normalize(aligned), own)
    assert firsts == [1.0, 1.0, module.FIRST if trusted else 1.0]
