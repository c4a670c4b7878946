"""The adaptation stage where classes are unequal: when it declines, and what it aims at."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.nn.functional import normalize

import fedrf
from fedrf.adaptation.pseudo_labels import OwnView, pseudo_labels, support
from fedrf.adaptation.stage import reason_to_decline
from fedrf.experiment.results import RunFolder

COLUMNS, CLASSES = 8, 4


def clusters(counts, spread, seed=0):
    """Return rows around one centre for each class, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    centres = 3 * torch.randn(len(counts), COLUMNS, generator=torch.Generator().manual_seed(42))
    return centres[labels] + spread * torch.randn(len(labels), COLUMNS, generator=generator), labels


def test_support_by_hand():
    nearest = torch.tensor([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    own = OwnView(torch.zeros(4, 2), nearest)
    assert support(torch.tensor([0, 0, 0, 0]), own, 2) == 1.0
    assert support(torch.tensor([0, 0, 0, 1]), own, 2) == 0.75  # the last has three neighbours of the other class


def test_few_samples_of_many_classes_are_a_reason_to_decline():
    rows, labels = clusters([18, 5, 2, 2], 0.1)
    view = OwnView.of(rows, CLASSES)
    assert (
        reason_to_decline(labels, CLASSES, view)
        == "predicted classes are unequal, and 27 samples of 4 classes are too few"
    )
    rows, labels = clusters([16, 6, 6], 0.1)
    assert reason_to_decline(labels, 3, OwnView.of(rows, 3)) == ""


def test_predictions_that_differ_from_those_of_neighbours_are_a_reason_to_decline():
    rows, labels = clusters([60, 20, 10, 10], 0.1)
    view = OwnView.of(rows, CLASSES)
    assert reason_to_decline(labels, CLASSES, view) == ""
    mixed = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    assert "of samples are predicted as most of their neighbours" in reason_to_decline(mixed, CLASSES, view)
    assert reason_to_decline(mixed, CLASSES, None) == ""


@pytest.mark.parametrize("seed", range(3))
def test_centres_of_rare_classes_take_fewer_samples_of_a_large_one_if_classes_are_unequal(seed):
    rows, labels = clusters([200, 20, 20, 20], 2.0, seed)
    noise = torch.randn(len(labels), CLASSES, generator=torch.Generator().manual_seed(seed))
    probabilities = (2 * torch.eye(CLASSES)[labels] + 1.5 * noise).softmax(1)
    accuracies = [
        float((pseudo_labels(probabilities, normalize(rows), None, amount) == labels).float().mean())
        for amount in (0.0, 1.0)
    ]
    assert accuracies[0] < accuracies[1] - 0.02


@pytest.fixture
def run(tmp_path):
    """Run one-shot adaptation of a target with these classes; sources have equal ones."""

    def run(counts, spread=1.0, **more):
        root = tmp_path / "data"
        root.mkdir()
        for name, domain_counts, seed in (("a", [60] * CLASSES, 1), ("b", [60] * CLASSES, 2), ("t", counts, 3)):
            rows, labels = clusters(domain_counts, spread, seed)
            rows = rows + 2.0 * (name == "t") * torch.randn(COLUMNS, generator=torch.Generator().manual_seed(9))
            save_file({"features": rows.numpy(), "labels": labels.numpy()}, root / f"{name}.safetensors")
        keys = {
            "method": "fedrf-oneshot",
            "data.name": "features",
            "data.root": str(root),
            "data.target": "t",
            "data.classes": [str(label) for label in range(CLASSES)],
            "model.num_features": 60,
            "align.rank": 20,
            "adapt.steps": 30,
            "track.evaluate_every": 10,
            "federation.mode": "sync",
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        return fedrf.run(None, keys, out=tmp_path / "run", local=True)

    return run


def steps_of(result):
    return [row["step"] for row in RunFolder.open(result.folder).rows() if "step" in row]


def predictions(result):
    return np.genfromtxt(result.folder / "predictions.csv", delimiter=",", skip_header=1)[:, 1]


def test_a_target_with_few_samples_of_unequal_classes_is_not_adapted(run):
    result = run([16, 4, 2, 2])
    assert result.summary["notes"] == [
        "t: no adaptation, because predicted classes are unequal, and 24 samples of 4 classes are too few"
    ]
    assert steps_of(result) == []


def test_with_equal_shares_it_is_adapted_all_the_same(run):
    result = run([16, 4, 2, 2], adapt__shares="equal")
    assert result.summary["notes"] == []
    assert steps_of(result) == [10, 20, 30]


@pytest.mark.parametrize("pseudo_labels", [0.3, 0.0])
def test_a_rare_class_stays_rare(run, pseudo_labels):
    """60 % and 5 % of the samples: equal shares would spread the large class over the others."""
    counts = [120, 40, 30, 10]
    result = run(counts, adapt__pseudo_labels=pseudo_labels, adapt__lr=0.01)
    assert steps_of(result) == [10, 20, 30]
    found = np.bincount(predictions(result).astype(int), minlength=CLASSES)
    assert abs(found - counts).sum() / 2 <= 0.1 * sum(counts)
