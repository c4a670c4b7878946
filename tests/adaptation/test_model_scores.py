"""Scores that need a network: against skada and scikit-learn, and on networks with known answers."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from torch import nn
from torch.nn.functional import normalize

import fedrf
from fedrf.adaptation.model_scores import MIXING, class_agreement, mixed_consistency, model_scores
from fedrf.models.extractors.extractor import CachedExtractor
from fedrf.models.network import DomainModel
from fedrf.models.trunk_rows import TrunkRows
from fedrf.tca.random_features import RandomFourierFeatures
from tests.conftest import SYNC

skada = pytest.importorskip("skada")
from skada.metrics import MixValScorer  # noqa: E402

COLUMNS, CLASSES = 5, 3


@pytest.fixture
def model():
    torch.manual_seed(0)
    extractor = CachedExtractor(nn.Identity(), COLUMNS, adapter_is_applied=False)
    return DomainModel(extractor, RandomFourierFeatures(COLUMNS, 40, 1.0), 4, CLASSES).eval()


@pytest.fixture
def rows():
    return torch.randn(90, COLUMNS, generator=torch.Generator().manual_seed(1))


class Estimator(ClassifierMixin, BaseEstimator):
    """The network as skada calls it."""

    def __init__(self, model=None):
        self.model = model
        self.classes_ = np.arange(CLASSES)

    def fit(self, X, y):
        return self

    def predict(self, X, **_):
        with torch.no_grad():
            return self.model(torch.from_numpy(X).float()).argmax(1).numpy()

    def score(self, X, y, **_):
        return float(np.mean(self.predict(X) == y))


@torch.no_grad()
def test_mixed_consistency_equals_skadas(model, rows):
    scorer = MixValScorer(alpha=MIXING, random_state=0)
    domain = np.full(len(rows), -1)
    X, y = rows.numpy(), np.arange(len(rows)) % CLASSES
    expected = scorer._score(None, Estimator(model), X, y, sample_domain=domain)
    ours = mixed_consistency(model, TrunkRows.of([rows], len(rows)), np.arange(len(rows)), model(rows).argmax(1))
    assert 0.3 < ours < 1
    assert ours == pytest.approx(expected)


@torch.no_grad()
def test_mixtures_of_one_class_are_consistent(model, rows):
    nn.init.zeros_(model.classifier.weight)
    assert mixed_consistency(model, TrunkRows.of([rows], len(rows)), np.arange(len(rows)), model(rows).argmax(1)) == 1.0


@torch.no_grad()
def test_class_agreement_is_the_information_of_clusters(model, rows):
    aligned = model(rows, "aligned")
    features = normalize(aligned - aligned.mean(0)).numpy()
    clusters = KMeans(CLASSES, n_init=1, random_state=0).fit(features).labels_
    predicted = model(rows).argmax(1)
    everything = TrunkRows.of([rows], len(rows)), np.arange(len(rows))
    assert class_agreement(model, *everything, predicted) == adjusted_mutual_info_score(predicted.numpy(), clusters)
    assert class_agreement(model, *everything, torch.from_numpy(clusters)) == pytest.approx(1)


def test_many_rows_are_subsampled_and_only_named_scores_are_computed(model):
    rows = torch.randn(3000, COLUMNS, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        probabilities = model(rows).softmax(1)
    figures = model_scores(model, TrunkRows.of([rows], len(rows)), probabilities, ["mixval"])
    assert figures.keys() == {"mixval"}
    assert 0 < figures["mixval"] < 1
    assert model_scores(model, TrunkRows.of([rows], len(rows)), probabilities, []) == {}


def test_a_score_that_selects_is_in_every_evaluation_and_others_at_the_end_only(tmp_path):
    run = fedrf.run(None, {**SYNC, "track.select": "mixval"}, out=tmp_path / "run", local=True)
    assert run.summary["target_accuracy"]["selected"] is not None
    lines = [line for line in (run.folder / "metrics.jsonl").read_text().splitlines() if '"information"' in line]
    target = [line for line in lines if '"handwritten"' in line]
    assert all('"mixval"' in line for line in target)
    assert sum('"classami"' in line for line in target) == 1
    sources = [line for line in lines if '"handwritten"' not in line]
    assert sources
    assert not any('"mixval"' in line for line in sources)
