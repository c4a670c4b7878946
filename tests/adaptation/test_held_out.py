"""Samples that sources hold out: they are not used in training, and their scores select a round."""

import copy
import json

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import fedrf
from fedrf.adaptation.held_out import HeldOut
from fedrf.adaptation.scores import deep_embedded_validation, importance_weights
from fedrf.adaptation.selection import BUILT_IN, best, evaluations
from fedrf.config.loader import load_config
from fedrf.experiment.results import RunFolder
from tests.conftest import TINY, final_weights
from tests.federation.recording import new_client

SYNC = {**TINY, "federation.mode": "sync", "data.validation": 0.25}
SOURCES = ("rendered", "textured", "street")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return fedrf.run(None, SYNC, out=tmp_path_factory.mktemp("finished") / "run", local=True)


@pytest.fixture
def module(tmp_path):
    return new_client(load_config(None, {**SYNC, "model.sigma": 1.0}), "street", tmp_path).module


def test_held_out_samples_are_in_no_batch_and_in_no_mean(module):
    samples = module.samples
    held_out = set(samples.held_out.held_out)
    assert len(held_out) == 30
    rows = [set(samples.batch(number, 15).rows.tolist()) for number in range(1, 7)]
    assert not held_out & set().union(*rows)
    assert len(set().union(*rows)) == 90
    batch = samples.batch(1, 16)
    torch.testing.assert_close(batch.labels, samples.labels[batch.rows])
    torch.testing.assert_close(batch.inputs, samples.rows[batch.rows])
    features = torch.cat(list(module.all_features()))
    with torch.no_grad():
        torch.testing.assert_close(features, module.features(samples.rows[samples.training]))


def test_the_target_holds_nothing_out(tmp_path):
    config = load_config(None, {**SYNC, "model.sigma": 1.0})
    samples = new_client(config, "handwritten", tmp_path).module.samples
    assert samples.held_out is None
    assert len(samples.training) == 120


def test_figures_are_the_scores_of_the_held_out_samples(module):
    samples = module.samples
    positions = samples.held_out.held_out
    assert samples.held_out_scores(module).keys() == {"validation"}  # no Σℓ of the target has arrived
    with torch.no_grad():
        training, held_out = (module.features(samples.rows[part]) for part in (samples.training, positions))
        logits, labels = module.logits(held_out), samples.labels[positions]
    samples.held_out.target_mean = training[:20].mean(0)
    figures = samples.held_out_scores(module)
    assert figures["validation"] == pytest.approx(float((logits.argmax(1) == labels).double().mean()))
    weights = importance_weights(training, held_out, training[:20].mean(0))
    correct = (logits.argmax(1) == labels).double()
    assert figures["importance"] == pytest.approx(np.average(correct, weights=weights))
    risk = deep_embedded_validation(cross_entropy(logits, labels, reduction="none").double(), weights)
    assert figures["dev"] == pytest.approx(float(risk), rel=1e-4)


def test_density_ratios_are_recomputed_if_the_mean_or_the_extractor_learns(module):
    samples = module.samples
    with torch.no_grad():
        features = module.features(samples.rows[samples.training])

    def held_out(extractor_learns):
        scorer = HeldOut(samples.training, samples.held_out.held_out, samples.labels, extractor_learns)
        scorer.target_mean = features[:20].mean(0)
        return scorer

    changing, fixed = held_out(True), held_out(False)
    before = fixed.scores(module, samples.rows)
    assert changing.scores(module, samples.rows) == before
    fixed.target_mean = features[20:40].mean(0)
    assert fixed.scores(module, samples.rows)["dev"] != before["dev"]
    other = copy.deepcopy(module)
    other.random_features.frequencies.mul_(2)  # as another extractor would do
    assert changing.scores(other, samples.rows) == held_out(False).scores(other, samples.rows)


def test_sources_report_at_every_evaluation_and_at_the_end(finished):
    rows = RunFolder(finished.folder).rows()
    for name in SOURCES:
        scores = [row for row in rows if row["client"] == name and "validation" in row]
        assert [(row["round"], row.get("final")) for row in scores] == [(2, None), (4, None), (6, None), (6, 1)]
        assert all(0 <= row["validation"] <= 1 and np.isfinite(row["dev"]) for row in scores)
    target = [row for row in rows if row["client"] == "handwritten" and "information" in row]
    assert all("density" in row and "validation" not in row for row in target)
    last = evaluations(rows, "handwritten")[-1]
    assert finished.summary["scores"] == {score: last[score] for score in BUILT_IN}
    assert finished.summary["scores"]["information"] == finished.summary["target_information"]


def test_the_score_selects_and_changes_nothing_else(finished, tmp_path):
    rows = evaluations(RunFolder(finished.folder).rows(), "handwritten")
    for score in ("dev", "entropy"):
        run = fedrf.run(None, {**SYNC, "track.select": score}, out=tmp_path / score, local=True)
        assert final_weights(run) == final_weights(finished)
        assert run.summary["config_hash"] == finished.summary["config_hash"]
        assert run.summary["target_accuracy"]["selected"] == best(rows, score)["accuracy"]


def test_without_held_out_samples_there_are_no_scores_of_sources(tmp_path):
    run = fedrf.run(None, {**SYNC, "data.validation": 0}, out=tmp_path / "run", local=True)
    assert run.summary["scores"].keys() == {
        "information",
        "density",
        "entropy",
        "bnm",
        "classami",
        "mixval",
    }
    assert not any("validation" in row or "dev" in row for row in RunFolder(run.folder).rows())


def test_a_note_names_a_source_with_too_few_samples(tmp_path):
    few = {**SYNC, "data.validation": 0.01}
    run = fedrf.run(None, few, out=tmp_path / "run", local=True)
    assert "street: data.validation=0.01 of 120 samples is too few to score with" in run.summary["notes"]
    assert "validation" not in json.loads((run.folder / "summary.json").read_text())["scores"]


def test_a_resumed_run_has_the_same_scores(tmp_path, monkeypatch):
    """The only Σℓ that reaches a source may have arrived before the interruption."""
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.02)
    settings = {**SYNC, "federation.embeddings_from": "ordered", "federation.checkpoint_seconds": 0}
    whole = fedrf.run(None, settings, out=tmp_path / "whole", local=True)
    slow = {**settings, "federation.delays": {"street": 0.1}}
    half = fedrf.run(
        None, slow, out=tmp_path / "half", local=True, observe=lambda rows: any(row["round"] > 2 for row in rows)
    )
    assert not half.finished
    resumed = fedrf.run(resume=half.folder, local=True)
    assert resumed.summary["scores"] == whole.summary["scores"]
    rows = [RunFolder(run.folder).rows() for run in (whole, resumed)]
    first, second = ({(row["client"], row["round"]): row["dev"] for row in figures if "dev" in row} for figures in rows)
    assert first == second
