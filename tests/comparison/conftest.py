"""Comparisons whose runs have given results."""

import pytest

from fedrf.comparison.plan import plan_comparison
from fedrf.comparison.results import CellResult, Comparison

TWO_METHODS = {"methods": ["source-only", "fedrf-plus"], "targets": ["street", "rendered"]}
ACCURACIES = {
    ("source-only", "street"): (0.5, 0.6, 0.7),
    ("source-only", "rendered"): (0.8, 0.8, 0.8),
    ("fedrf-plus", "street"): (0.9, 0.9, 0.9),
    ("fedrf-plus", "rendered"): (0.7, 0.8, 0.6),
}


def make_comparison(folder, accuracy, scores=lambda *_: {}, **options):
    """Return a comparison with results `accuracy(variant, target, seed)`, which may be "failed" or None (no run)."""
    plan = plan_comparison("digits", **options)
    comparison = Comparison.open(plan, folder)
    for cell in plan.cells:
        final = accuracy(cell.variant.name, cell.task.target, cell.seed)
        path = folder / cell.folder
        if final == "failed":
            comparison.runs[cell.digest] = CellResult(path, "failed", error="OSError: no room")
        elif final is not None:
            summary = {
                "target_accuracy": {"final": final, "selected": final - 0.1, "oracle": final + 0.1},
                "communication": {"bytes_total": 2_000_000},
                "seconds": {"total": 4.0},
                "rounds": 5,
                "scores": scores(cell.variant.name, cell.seed),
            }
            comparison.runs[cell.digest] = CellResult(path, "finished", summary)
    return comparison


@pytest.fixture
def comparison(tmp_path):
    """Two methods, two tasks and three seeds, with `ACCURACIES`."""
    return make_comparison(tmp_path, lambda variant, target, seed: ACCURACIES[variant, target][seed], **TWO_METHODS)
