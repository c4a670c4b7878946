"""Sweeps in closed form: the solutions equal those of separate fits, and target labels do not affect the choice."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.loader import load_config
from fedrf.data.domains import load_samples, resolve_data
from fedrf.estimators import RFTCA
from tests.conftest import make_domains
from tests.experiment.conftest import write_images
from tune.closed_form import ClosedFormGrid, oracle, selected, solve_gamma_path, sweep_grid
from tune.closed_form_report import run_closed_form
from tune.pooled import PooledData, load_pooled

GAMMAS = (0.01, 1.0, 100.0)
GRID = ClosedFormGrid(GAMMAS, (5.0, 10.0), (12, 20))


def make_pooled(**keys):
    rows, domain = make_domains(dtype=np.float32)
    order = np.argsort(-domain, kind="stable")
    settings = load_config(None, {"model.dim": 5, "seed": 3} | keys)
    labels = (rows[order][:70, 1] > 0).astype(np.int64)
    return PooledData.from_rows(settings, torch.from_numpy(rows[order]), labels, Evaluator(None))


@pytest.mark.parametrize(
    ("kernel", "num_features"), [("gaussian", 20), ("laplace", 20), ("cauchy", 20), ("gaussian", 400)]
)
def test_every_point_equals_a_separate_fit(kernel, num_features):
    pooled = make_pooled(**{"model.kernel": kernel})
    rows = pooled.rows.numpy()
    path = solve_gamma_path(pooled, num_features, 7.0, GAMMAS)
    for gamma, estimator, aligned in zip(GAMMAS, path.estimators, path.aligned, strict=True):
        separate = RFTCA(5, num_features, 7 * pooled.sigma_unit, gamma * 120 / (70 * 50), kernel, random_state=3)
        expected = separate.fit_transform(rows, sample_domain=pooled.domain)
        np.testing.assert_allclose(aligned, expected, atol=1e-4)
        np.testing.assert_allclose(estimator.aligner_, separate.aligner_, atol=1e-4)
        np.testing.assert_allclose(estimator.mmd_, separate.mmd_, rtol=1e-4)
        np.testing.assert_allclose(path.informative, separate.informative_gamma_range(), rtol=1e-4)


def test_all_gammas_share_features_and_statistics(monkeypatch):
    fits = []
    original = RFTCA._add
    monkeypatch.setattr(RFTCA, "_add", lambda *arguments: fits.append(1) or original(*arguments))
    points = sweep_grid(make_pooled(), GRID)
    assert len(points) == GRID.size == 12
    assert len(fits) == 4


@pytest.mark.filterwarnings("error:only")  # `dim` reports components without variance
def test_width_and_number_of_components():
    pooled = make_pooled(**{"model.sigma": 3.0, "model.dim": 500})
    assert pooled.sigma_unit == pytest.approx(0.3)
    assert pooled.estimator(20, 5).dim == 40
    assert pooled.estimator(400, 5).dim == 119
    twice = replace(pooled, rows=pooled.rows[60:80].repeat_interleave(2, dim=0), labels=pooled.labels[50:])
    assert [point.dim for point in sweep_grid(twice, ClosedFormGrid((1.0,), (10.0,), (400,)))] == [19]


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Two sources and a target of two classes in feature files; returns a writer of the target with given labels."""
    root = tmp_path_factory.mktemp("features")
    rows, domain = make_domains(90, 40, columns=5)
    labels = (rows[:, 1] > 0).astype(int)
    source, target = rows[domain > 0], rows[domain < 0]
    np.savez(root / "a.npz", X=source[:50], y=labels[domain > 0][:50])
    np.savez(root / "b.npz", X=3 * source[50:] + 1, y=labels[domain > 0][50:])

    def write(relabel):
        given = {"X": target} if relabel is None else {"X": target, "y": relabel(labels[domain < 0])}
        np.savez(root / "t.npz", **given)
        return resolved("features", root, "t", **{"data.scale": "standard", "model.dim": 4})

    return write


def resolved(name, root, target, **keys):
    config = load_config(None, {"data.name": name, "data.root": str(root), "data.target": target} | keys)
    return config.model_copy(update={"data": resolve_data(config.data)})


def run(config, out, grid):
    text = io.StringIO()
    summary = run_closed_form(config, out, Console(file=text, width=100), grid)
    return summary, read(out / "points.csv"), text.getvalue()


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_files_hold_all_points_and_the_choice(features, tmp_path):
    out = tmp_path / "out"
    summary, points, text = run(features(lambda y: y), out, GRID)
    assert json.loads((out / "summary.json").read_text()) == summary
    best = max(points[6:], key=lambda point: float(point["score"]))
    assert {key: str(value) for key, value in summary["selected"].items()} == best
    assert summary["points"] == len(points) == 12
    assert [float(point["gamma"]) / summary["units"]["gamma"] for point in points] == pytest.approx([*GAMMAS] * 4)
    for point in points:
        inside = float(point["zone_low"]) <= float(point["gamma"]) <= float(point["zone_high"])
        assert point["informative"] == str(inside)
    assert summary["oracle"]["accuracy"] >= summary["selected"]["accuracy"] > 0.8
    assert "Oracle, chosen with target labels" in text
    for name in ("grid.svg", "gamma.svg"):
        assert "<svg" in (out / name).read_text()
    for size, group in summary["num_features"].items():
        widths = {point["sigma"] for point in read(out / "curve.csv") if point["num_features"] == size}
        assert widths == {str(group["selected"]["sigma"])}


def test_target_labels_do_not_affect_the_choice(features, tmp_path):
    grid = ClosedFormGrid(GAMMAS, (5.0, 10.0), (12,))
    true, wrong = (sweep_grid(load_pooled(features(relabel)), grid) for relabel in (lambda y: y, lambda y: 1 - y))
    summary, unlabelled, text = run(features(None), tmp_path / "out", grid)
    assert [point.score for point in true] == [point.score for point in wrong]
    assert [str(point.score) for point in true] == [point["score"] for point in unlabelled]
    assert true.index(selected(true)) == wrong.index(selected(wrong))
    assert selected(true).gamma == selected(wrong).gamma == summary["selected"]["gamma"]
    assert selected(true).accuracy == pytest.approx(1 - selected(wrong).accuracy)
    assert summary["oracle"] is summary["selected"]["accuracy"] is None
    assert {point["accuracy"] for point in unlabelled} == {""}
    assert "Oracle" not in text


def test_rows_equal_those_of_a_federated_run(features, tmp_path):
    config = features(lambda y: y)
    pooled = load_pooled(config)
    parts = [load_samples(config, name) for name in ("a", "b", "t")]
    expected = np.concatenate([part.array() for part in parts])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(pooled.rows, expected, atol=1e-6)
    assert pooled.labels.tolist() == [*parts[0].labels, *parts[1].labels]


def test_images_are_passed_through_the_extractor(tmp_path):
    config = resolved("folder", write_images(tmp_path, per_class=2), "home", **{"model.extractor": "gradients"})
    pooled = load_pooled(config)
    assert pooled.rows.shape == (18, 416)
    np.testing.assert_allclose(pooled.rows.norm(dim=1), 1, atol=1e-5)
    labels = [load_samples(config, name).labels.tolist() for name in ("clinic", "ward")]
    assert [sorted(part) for part in labels] == [[0, 0, 1, 1, 2, 2]] * 2
    assert pooled.labels.tolist() == labels[0] + labels[1]


def test_selected_and_oracle_points():
    point = sweep_grid(make_pooled(), ClosedFormGrid((1.0,), (5.0,), (12,)))[0]
    values = [(12, 9.0, 0.8), (20, 5.0, 0.9), (20, 6.0, 0.7)]
    points = [replace(point, num_features=n, score=score, accuracy=accuracy) for n, score, accuracy in values]
    assert selected(points) is points[2]  # scores of different N are not comparable
    assert oracle(points) is points[1]
    assert oracle([point]) is None


def test_invalid_input_is_refused_in_one_line(features, tmp_path):
    config = features(None)

    def error(config, out=tmp_path / "out"):
        with pytest.raises(ValueError, match=r"\w") as caught:
            run_closed_form(config, out, Console(quiet=True), GRID)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    trained = config.model_copy(update={"model": config.model.model_copy(update={"extractor": "mlp"})})
    assert "model.extractor=mlp" in error(trained)
    for name in ("a", "t"):
        np.savez(tmp_path / f"{name}.npz", X=np.eye(5), y=np.zeros(5, int))
    one_class = resolved("features", tmp_path, "t", **{"data.classes": ["0", "1"]})
    assert "a: all samples are of one class" in error(one_class)
    (tmp_path / "file").write_text("")
    assert "is a file" in error(config, tmp_path / "file")
    (tmp_path / "out" / "points.csv").write_text("")
    assert "already holds a sweep" in error(config)
