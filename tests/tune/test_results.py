"""Ranking and plots of trials."""

import pytest

from tests.experiment.test_drawing import drawn_texts
from tune.plan import plan_sweep
from tune.report import draw
from tune.results import TrialResult, best, ranked
from tune.space import Parameter


def test_negative_scores_are_ranked_above_missing_scores():
    scores = (-0.5, None, -0.2)
    results = [TrialResult(n, "finished", {}, 9, 9, score, None, 1, 1.0, "") for n, score in enumerate(scores, 1)]
    assert best(results).number == 3
    assert [result.number for result in ranked(results)] == [3, 1, 2]


def test_plots_accept_text_values_and_missing_accuracies():
    space = {"model.sigma": Parameter(default=1.0, values=["median", 1.0])}
    points = [{"model.sigma": value} for value in ("median", 1.0, 1.0)]
    results = [TrialResult(n, "finished", point, 9, 9, 0.1 * n, None, 1, 1.0, "") for n, point in enumerate(points, 1)]
    plan = plan_sweep("digits", {"method": "fedrf-plus"}, search="grid").model_copy(update={"space": space})
    assert draw(results, "model.sigma", space["model.sigma"], plan).count("<svg") == 1


@pytest.mark.filterwarnings("error")
def test_values_and_methods_are_drawn_as_they_are():
    values, method = [r"a$\foo$b", "急诊科.npz"], r"mine$:\Net$"
    space = {"model.weights": Parameter(default=values[0], values=values)}
    points = [{"model.weights": value, "method": method} for value in values]
    results = [TrialResult(n, "finished", point, 9, 9, 0.1 * n, 0.5, 1, 1.0, "") for n, point in enumerate(points, 1)]
    plan = plan_sweep("digits", {"method": "fedrf-plus"}, search="grid").model_copy(update={"space": space})
    svg = draw(results, "model.weights", space["model.weights"], plan)
    assert drawn_texts(svg) >= {*values, method}
