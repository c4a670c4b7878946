"""The federated warm start of W: the solution for pooled samples, and its cost."""

import numpy as np
import pytest
import torch

from fedrf.config.loader import load_config
from fedrf.data.domains import clients_of
from fedrf.tca.problems import ScatterProblem
from fedrf.tca.statistics import DomainStatistics
from tests.federation.recording import FIXED_SIGMA, SYNC, new_client, run_recorded


@pytest.mark.parametrize("form", ["statistics", "subspace"])
def test_a_warm_start_is_the_pooled_solution(tmp_path, form):
    settings = {**SYNC, "align.warm_start": form, "model.sigma": 1.0, "align.gamma": 0.01}
    result, calls = run_recorded(settings, tmp_path / "run")
    sources, target = clients_of(result.config)
    features = {}
    for name in (*sources, target):
        module = new_client(load_config(None, FIXED_SIGMA), name, tmp_path).module
        with torch.no_grad():
            features[name] = module.features(module.samples.rows[np.arange(len(module.samples.rows))])
    pooled = ScatterProblem(
        DomainStatistics.of(torch.cat([features[name] for name in sources]).double()),
        DomainStatistics.of(features[target].double()),
    ).solve(0.01, 8)
    answers = [answer for name, _, answer in calls if name == "warm_start"]
    expected, got = (
        torch.linalg.qr(aligner).Q for aligner in (pooled.aligner, torch.tensor(answers[-1].values).double())
    )
    assert torch.linalg.matrix_norm(expected - got @ (got.T @ expected), 2) < 1e-2
    assert result.finished


def test_cost_of_both_forms(tmp_path):
    up = {}
    for form, kind in (("statistics", "statistics"), ("subspace", "product")):
        settings = {**SYNC, "align.warm_start": form, "model.num_features": 200, "train.rounds": 1}
        result, _ = run_recorded({**settings, "adapt.when": "never"}, tmp_path / form)
        up[form] = result.summary["communication"]["by_direction"]["up"][kind]
    assert up["statistics"] == 4 * (4 * 401 * 400 + 8)
    assert up["subspace"] < up["statistics"] / 2
