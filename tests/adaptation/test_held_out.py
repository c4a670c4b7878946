"""Sources that hold samples out: what these are kept from, and what they choose."""

import copy
import json

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import fedrf
from fedrf.adaptation.held_out import HeldOut
from fedrf.adaptation.scores import deep_embedded_validation, importance_weights
from fedrf.adaptation.selection import SIGNS, best, evaluations
from fedrf.config.loader import load_config
from fedrf.experiment.results import RunFolder
from tests.conftest import TINY, final_weights
from tests.federation.test_federation import new_client

SYNC = {**TINY, "federation.mode": "sync", "data.validation": 0.25}
SOURCES = ("rendered", "textured", "street")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return fedrf.run(None, SYNC, out=tmp_path_factory.mktemp("finished") / "run", local=True)


@pytest.fixture
def client(tmp_path):
    return new_client(load_config(None, {**SYNC, "model.sigma": 1.0}), "street", tmp_path)


def test_held_out_samples_are_in_no_batch_and_in_no_mean(client):
    held_out = set(client.held_out.rows)
    assert len(held_out) == 30
    rows = [set(client.batch(number, 15).rows.tolist()) for number in range(1, 7)]
    assert not held_out & set().union(*rows)
    assert len(set().union(*rows)) == 90
    batch = client.batch(1, 16)
    torch.testing.assert_close(batch.labels, client.labels[batch.rows])
    torch.testing.assert_close(batch.inputs, client.trunk[batch.rows])
    features = torch.cat(list(client._all_features(client.model)))
    with torch.no_grad():
        torch.testing.assert_close(features, client.model.features(client.trunk[client.training]))


def test_the_target_holds_nothing_out(tmp_path):
    target = new_client(load_config(None, {**SYNC, "model.sigma": 1.0}), "handwritten", tmp_path)
    assert target.held_out is None
    assert len(target.training) == 120


def test_the_figures_are_the_scores_of_the_held_out_samples(client):
    model, rows = client.model, client.held_out.rows
    assert client.held_out.scores(model, client.trunk).keys() == {"validation"}  # no Σℓ of the target came yet
    with torch.no_grad():
        training, held_out = (model.features(client.trunk[some]) for some in (client.training, rows))
        logits, labels = model.logits(held_out), client.labels[rows]
    client.held_out.target_mean = training[:20].mean(0)
    figures = client.held_out.scores(model, client.trunk)
    assert figures["validation"] == pytest.approx(float((logits.argmax(1) == labels).double().mean()))
    weights = importance_weights(training, held_out, training[:20].mean(0))
    risk = deep_embedded_validation(cross_entropy(logits, labels, reduction="none").double(), weights)
    assert figures["dev"] == pytest.approx(float(risk), rel=1e-4)


def test_density_ratios_are_new_where_the_mean_or_the_extractor_is(client):
    model, rows = client.model, client.held_out.rows
    with torch.no_grad():
        features = model.features(client.trunk[client.training])
    moving = HeldOut(client.training, rows, client.labels, moves=True)
    still = HeldOut(client.training, rows, client.labels, moves=False)
    for one in (moving, still):
        one.target_mean = features[:20].mean(0)
    before = still.scores(model, client.trunk)
    assert moving.scores(model, client.trunk) == before
    still.target_mean = features[20:40].mean(0)
    assert still.scores(model, client.trunk)["dev"] != before["dev"]
    other = copy.deepcopy(model)
    other.random_features.frequencies.mul_(2)  # as another extractor would do
    fresh = HeldOut(client.training, rows, client.labels, moves=False)
    fresh.target_mean = moving.target_mean
    assert moving.scores(other, client.trunk) == fresh.scores(other, client.trunk)


def test_sources_report_at_every_evaluation_and_in_the_end(finished):
    rows = RunFolder(finished.folder).rows()
    for name in SOURCES:
        mine = [row for row in rows if row["client"] == name and "validation" in row]
        assert [(row["round"], row.get("final")) for row in mine] == [(2, None), (4, None), (6, None), (6, 1)]
        assert all(0 <= row["validation"] <= 1 and np.isfinite(row["dev"]) for row in mine)
    target = [row for row in rows if row["client"] == "handwritten" and "information" in row]
    assert all("density" in row and "validation" not in row for row in target)
    last = evaluations(rows, "handwritten")[-1]
    assert finished.summary["scores"] == {score: last[score] for score in SIGNS}
    assert finished.summary["scores"]["information"] == finished.summary["target_information"]


def test_the_score_chooses_and_changes_nothing_else(finished, tmp_path):
    rows = evaluations(RunFolder(finished.folder).rows(), "handwritten")
    for score in ("dev", "entropy"):
        run = fedrf.run(None, {**SYNC, "track.select": score}, out=tmp_path / score, local=True)
        assert final_weights(run) == final_weights(finished)
        assert run.summary["config_hash"] == finished.summary["config_hash"]
        assert run.summary["target_accuracy"]["selected"] == best(rows, score)["accuracy"]


def test_without_a_share_there_are_no_such_figures(tmp_path):
    run = fedrf.run(None, {**SYNC, "data.validation": 0}, out=tmp_path / "run", local=True)
    assert run.summary["scores"].keys() == {"information", "density", "entropy"}
    assert not any("validation" in row or "dev" in row for row in RunFolder(run.folder).rows())


def test_a_source_that_has_too_few_samples_says_so(tmp_path):
    few = {**SYNC, "data.validation": 0.01}
    run = fedrf.run(None, few, out=tmp_path / "run", local=True)
    assert "street: data.validation=0.01 of 120 samples is too few to score with" in run.summary["notes"]
    assert "validation" not in json.loads((run.folder / "summary.json").read_text())["scores"]


def test_a_resumed_run_scores_as_if_nothing_had_happened(tmp_path):
    """The only Σℓ that reaches a source may have come before the interruption."""
    settings = {**SYNC, "federation.messages": "ordered/all/all", "federation.checkpoint_seconds": 0}
    whole = fedrf.run(None, settings, out=tmp_path / "whole", local=True)
    slow = {**settings, "federation.delays": {"street": 0.4}}
    half = fedrf.run(
        None, slow, out=tmp_path / "half", local=True, observe=lambda rows: any(row["round"] > 2 for row in rows)
    )
    assert not half.finished
    resumed = fedrf.run(resume=half.folder, local=True)
    assert resumed.summary["scores"] == whole.summary["scores"]
    rows = [RunFolder(run.folder).rows() for run in (whole, resumed)]
    first, second = ({(row["client"], row["round"]): row["dev"] for row in some if "dev" in row} for some in rows)
    assert first == second
