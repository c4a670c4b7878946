"""Statistical tests against the reference, choices by score, and results below the baseline."""

import pytest

from fedrf.comparison.analysis import (
    below_baseline,
    choice_accuracies,
    differences_over_runs,
    differences_over_tasks,
)
from fedrf.comparison.export import as_json
from fedrf.comparison.remarks import remarks
from fedrf.comparison.rendering import as_markdown
from fedrf.comparison.results import CellResult
from tests.comparison.conftest import TWO_METHODS, make_comparison


def test_differences_are_against_the_first_variant(comparison):
    (row,) = differences_over_runs(comparison)
    assert (row.variant, row.pairs, row.wins, row.losses, row.ties) == ("fedrf-plus", 6, 3, 2, 1)
    assert row.mean == pytest.approx(0.1)
    assert differences_over_tasks(comparison) == []
    assert "Against source-only, in points: pairs of runs" in as_markdown(comparison)
    assert any("not independent" in remark and "6 tasks or more" in remark for remark in remarks(comparison))
    assert any("with 5 pairs that differ is 0.062." in remark for remark in remarks(comparison))


def test_six_tasks_are_also_tested_by_their_means(tmp_path):
    comparison = make_comparison(
        tmp_path,
        lambda variant, target, seed: 0.5 + 0.1 * (variant == "fedrf-plus"),
        methods=TWO_METHODS["methods"],
        targets=["street", "rendered"],
        sources="each",
    )
    (by_task,), (by_run,) = differences_over_tasks(comparison), differences_over_runs(comparison)
    assert (by_task.pairs, by_task.p) == (6, pytest.approx(2 / 64))
    assert (by_run.pairs, by_run.p) == (18, pytest.approx(2 / 2**18))
    assert "pairs of means of a task over seeds" in as_markdown(comparison)
    assert any("tasks that share domains" in remark for remark in remarks(comparison))


def test_tasks_on_which_a_variant_is_below_the_baseline_are_listed(comparison, tmp_path):
    assert "fedrf-plus: → rendered −10.0." in remarks(comparison)
    fine = make_comparison(tmp_path, lambda variant, *_: 0.5 if variant == "source-only" else 0.492, **TWO_METHODS)
    assert "No variant is more than one point worse than source-only on any task." in remarks(fine)
    without = make_comparison(tmp_path, lambda *_: 0.5, methods=["fedavg", "fedrf-plus"])
    assert below_baseline(without) is None
    assert not any("source-only" in remark for remark in remarks(without))


def test_only_runs_with_the_same_seed_are_compared_with_the_baseline(tmp_path):
    floor = {0: 0.5, 1: 0.7, 2: 0.7}

    def accuracy(variant, target, seed):
        return floor[seed] if variant == "source-only" else 0.52 if seed == 0 else None

    comparison = make_comparison(tmp_path, accuracy, **TWO_METHODS)
    assert below_baseline(comparison) == []
    assert any("on any task, as far as runs are there." in remark for remark in remarks(comparison))


SCORED = {
    # variant: accuracy, entropy (less is better), and density, for seeds 0 and 1
    "align.gamma=0.1": [(0.5, 1.0, 3.0), (0.6, 2.0, 1.0)],
    "align.gamma=1": [(0.7, 0.5, 2.0), (0.4, 1.0, None)],
    "align.gamma=10": [(0.9, 0.9, 1.0), (0.8, 1.5, 4.0)],
}


def scored(folder, **options):
    def scores(variant, seed):
        _, entropy, density = SCORED[variant][seed]
        return {"entropy": entropy, "density": density}

    options = {"vary": ["align.gamma=0.1,1,10"], "targets": ["street"], "seeds": [0, 1]} | options
    return make_comparison(folder, lambda variant, _, seed: SCORED[variant][seed][0], scores, **options)


def test_accuracy_of_the_choice_of_each_score_and_of_the_oracle(tmp_path):
    comparison = scored(tmp_path)
    assert {name: list(values.values()) for name, values in choice_accuracies(comparison).items()} == {
        "by density": [0.5, 0.8],
        "by entropy": [0.7, 0.4],
        "always align.gamma=0.1": [0.5, 0.6],
        "oracle (chosen with target labels)": [0.9, 0.8],
    }
    text = as_markdown(comparison)
    assert "| by density | 65.0 ± 21.2 |" in text
    assert "| oracle (chosen with target labels) | 85.0 ± 7.1 |" in text
    assert as_json(comparison)["choices"]["by entropy"]["mean"]["value"] == pytest.approx(0.55)


def test_there_is_no_choice_between_methods_nor_while_a_variant_is_missing(tmp_path):
    comparison = scored(tmp_path)
    missing = comparison.plan.cells[-1]
    comparison.runs[missing.digest] = CellResult(tmp_path / missing.folder)
    assert {len(values) for values in choice_accuracies(comparison).values()} == {1}
    methods = make_comparison(tmp_path, lambda *_: 0.5, lambda *_: {"entropy": 1.0}, **TWO_METHODS)
    assert choice_accuracies(methods) == {}


def test_variants_that_vote_are_not_chosen_by_confidence(tmp_path):
    comparison = make_comparison(
        tmp_path,
        lambda variant, *_: 0.1 if variant == "source-only" else 0.9,
        lambda variant, _: {"entropy": 0.0 if variant == "source-only" else 1.0},
        ablate=True,
        methods=["source-only"],
        targets=["street"],
    )
    assert set(choice_accuracies(comparison)["by entropy"].values()) == {0.9}
    votes = make_comparison(tmp_path, lambda *_: 0.5, methods=["source-only"], vary=["train.lr=0.1,0.2"])
    assert choice_accuracies(votes) == {}
