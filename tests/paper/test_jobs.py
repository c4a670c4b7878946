"""What jobs compute, against computations that do not use them."""

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

from fedrf.errors import RunFailedError
from fedrf.experiment.driver import Experiment
from fedrf.paper import approximation_job, closed_form_job
from fedrf.paper.approximation_job import approximation, run_approximation
from fedrf.paper.closed_form_job import GAMMAS, SIGMAS, alignment, gamma_path, run_alignment, run_gamma_path
from fedrf.paper.federated_job import run_federated
from fedrf.paper.jobs import JobStore, run_job
from fedrf.paper.setting import Domains, Setting
from tests.data import layouts


@pytest.fixture
def blobs(tmp_path):
    """Return two domains of three classes as feature files, the target shifted."""
    random = np.random.RandomState(0)
    for number, name in enumerate(("here", "there")):
        labels = np.arange(60) % 3
        rows = 3 * np.eye(3, 6)[labels] + 0.4 * random.randn(60, 6) + 0.8 * number
        layouts.arrays(tmp_path / f"{name}.npz", X=rows, y=labels + 1)
    settings = {"data.name": "features", "data.scale": "none"}
    return Domains(settings, {"S": "here", "T": "there"}), str(tmp_path)


def test_an_alignment_is_scored_without_target_labels_and_the_oracle_is_the_best_of_the_grid(
    blobs, tmp_path, monkeypatch
):
    monkeypatch.setattr(closed_form_job, "CLASSIFIER", "1-NN")  # the paper's network takes seconds for each point
    data, root = blobs
    item = alignment(data, ("S", "T"), "rf-tca", {"dim": 3, "num_features": 50}, search=True, root=root)
    result = run_alignment(item.settings, tmp_path, None)
    assert result["accuracy"] > 0.8
    assert result["oracle"] >= result["accuracy"]
    assert result["seconds"] > 0
    assert item.cost > 77 * alignment(data, ("S", "T"), "coral", {}, search=True).cost / 2


def test_the_papers_grid():
    assert GAMMAS == (1e-3, 1e-2, 1e-1, 1, 10, 100, 1000)
    assert SIGMAS == (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)


def test_a_path_over_gamma_has_an_accuracy_for_each_power_and_the_informative_interval(blobs, tmp_path):
    data, root = blobs
    item = gamma_path(data, ("S", "T"), "r-tca", ["-3.00", "0.00", "5.00"], root)
    settings = {**item.settings, "parameters": {"dim": 3}}
    result = run_gamma_path(settings, tmp_path, None)
    assert all(0 <= result[power] <= 1 for power in ("-3.00", "0.00", "5.00"))
    assert result["low"] < result["high"]


def test_a_federated_job_returns_what_the_ledger_counts(tmp_path):
    """Two sources and a target; sizes by hand."""
    num_features, dim, batch = 10, 4, 8
    settings = {
        "method": "fedrf-tca",
        "model.sharing": "local",
        "model.classifier": "linear",
        "data.name": "digits",
        "data.target": "street",
        "data.sources": ["rendered", "textured"],
        "data.samples": 40,
        "train.rounds": 1,
        "train.batch_size": batch,
        "model.num_features": num_features,
        "model.dim": dim,
    }
    item = Setting(True).run(0, settings)
    store = JobStore(tmp_path)
    values = run_job(item.function, item.settings, store.folder_of(item))
    # Σℓ of three clients up, of the target down to two sources, and of two sources down to the target.
    assert values["bytes of data"] == 4 * (3 + 2 + 2) * 2 * num_features
    assert values["data"] == pytest.approx(2 * num_features / 1e6)
    parameters = 2 * num_features * dim + (dim + 1) * 10
    assert values["parameters"] == pytest.approx(parameters / 1e6)
    assert values["sum"] == pytest.approx((parameters + 2 * num_features) / 1e6)
    assert store.result(item)["values"] == values


def test_the_error_of_theorem_1_is_that_of_eigenvectors_computed_directly(tmp_path):
    """The textbook form: eigenvectors of HK(γK + KℓℓᵀK)⁻¹KH, with K exact or from the same random features."""
    count, number, seed = 60, 40, 3
    item = approximation(count, number, seed)
    result = run_approximation(item.settings, tmp_path, None)
    rows, domain = approximation_job._draw(count, seed)
    squared = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    kernel = np.exp(-squared / (2 * approximation_job.SIGMA**2))
    frequencies = np.random.RandomState(seed).randn(number, rows.shape[1]) / approximation_job.SIGMA
    waves = np.vstack([np.cos(frequencies @ rows.T), np.sin(frequencies @ rows.T)]) / np.sqrt(number)
    vectors = [leading(matrix, domain, count) for matrix in (kernel, waves.T @ waves)]
    signs = np.sign((vectors[0] * vectors[1]).sum(0))
    assert result["error"] == pytest.approx(np.linalg.norm(vectors[0] - vectors[1] * signs), rel=1e-3)
    relative = np.linalg.norm(waves.T @ waves - kernel, 2) / np.linalg.norm(kernel, 2)
    assert result["kernel"] == pytest.approx(relative, rel=1e-3)
    assert result["error"] < result["davis-kahan"]


def leading(kernel, domain, count):
    labels = np.where(domain > 0, 1 / (domain > 0).sum(), -1 / (domain < 0).sum())
    centre = np.eye(count) - 1 / count
    inner = kernel - np.outer(kernel @ labels, kernel @ labels) / (approximation_job.GAMMA + labels @ kernel @ labels)
    return scipy.linalg.eigh(centre @ inner @ centre)[1][:, ::-1][:, : approximation_job.DIM]


def test_the_error_falls_with_the_square_root_of_the_number_of_frequencies(tmp_path):
    errors = [
        np.mean(
            [run_approximation(approximation(80, number, seed).settings, tmp_path, None)["error"] for seed in range(6)]
        )
        for number in (50, 800)
    ]
    assert 2 < errors[0] / errors[1] < 8  # 4 = √16


POLL = Experiment._poll


def stop_after_a_round(self, federation, tracker, display):
    POLL(self, federation, tracker, display)
    return any(number >= 1 for number in self.status.rounds.values())


def test_an_interrupted_run_is_continued_with_data_that_moved(blobs, tmp_path):
    """The first attempt stops half-way; the files are elsewhere in the second."""
    domains, root = blobs
    settings = {**domains.to("T"), "method": "fedrf-tca", "model.num_features": 10, "model.dim": 4}
    settings |= {
        "data.classes": ["1", "2", "3"],
        "federation.checkpoint_seconds": 0,
        "federation.delays": {"there": 0.1},
    }
    item = Setting(True, root).run(0, settings | {"train.rounds": 20})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Experiment, "_poll", stop_after_a_round)
        with pytest.raises(RunFailedError, match="interrupted"):
            run_federated(item.settings, tmp_path / "job", None)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in Path(root).glob("*.npz"):
        path.rename(moved / path.name)
    again = {**item.settings, "data": {**item.settings["data"], "root": str(moved)}}
    assert run_federated(again, tmp_path / "job", None)["accuracy"] > 0.3
