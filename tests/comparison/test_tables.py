"""Contents of the tables for results that are known in advance."""

from fedrf.comparison.export import as_json
from fedrf.comparison.remarks import remarks
from fedrf.comparison.tables import accuracy_grid
from tests.comparison.conftest import TWO_METHODS, make_comparison


def texts(grid):
    return {row[0].text: [entry.text for entry in row[1:]] for row in grid.rows}


def best(grid):
    return {row[0].text: [entry.best for entry in row[1:]] for row in grid.rows}


def test_means_and_deviations_match_hand_computed_numbers(comparison):
    grid = accuracy_grid(comparison, "final")
    assert grid.columns == ["", "→ street", "→ rendered", "mean", "sent a run", "seconds a run"]
    # over seeds: 65, 70, 75 and 80, 85, 75
    assert texts(grid) == {
        "source-only": ["60.0 ± 10.0", "80.0 ± 0.0", "70.0 ± 5.0", "2.0 MB", "4.0"],
        "fedrf-plus": ["90.0 ± 0.0", "70.0 ± 10.0", "80.0 ± 5.0", "2.0 MB", "4.0"],
    }
    assert best(grid) == {
        "source-only": [False, True, False, False, False],
        "fedrf-plus": [True, False, True, False, False],
    }
    assert texts(accuracy_grid(comparison, "selected"))["source-only"] == ["50.0 ± 10.0", "70.0 ± 0.0", "60.0 ± 5.0"]


def test_one_seed_has_no_deviation_one_task_has_no_mean_and_equal_results_are_both_best(tmp_path):
    grid = accuracy_grid(make_comparison(tmp_path, lambda *_: 0.5, methods=TWO_METHODS["methods"], seeds=[0]), "final")
    assert texts(grid)["fedrf-plus"][0] == "50.0"
    assert "mean" not in grid.columns
    assert best(grid) == {"source-only": [True, False, False], "fedrf-plus": [True, False, False]}


def test_failed_and_missing_runs_are_marked_and_never_best(tmp_path):
    def accuracy(variant, target, seed):
        if variant == "fedrf-plus":
            return "failed" if target == "street" else 0.99 if seed == 0 else None
        return 0.5

    comparison = make_comparison(tmp_path, accuracy, **TWO_METHODS)
    grid = accuracy_grid(comparison, "final")
    assert texts(grid)["fedrf-plus"][:3] == ["failed", "99.0 (1 of 3 runs)", "99.0 (1 of 6 runs)"]
    assert best(grid)["fedrf-plus"][:3] == [False] * 3
    assert best(grid)["source-only"][:3] == [False] * 3, "no other variant is complete"
    assert "Failed: fedrf-plus on → street, seed 2: OSError: no room." in remarks(comparison)
    assert as_json(comparison)["counts"] == {"finished": 7, "failed": 3, "unfinished": 2}


def test_tasks_with_one_source_and_with_all_sources_have_separate_means(tmp_path):
    comparison = make_comparison(
        tmp_path, lambda *_: 0.5, methods=["fedrf-plus"], targets=["street", "rendered"], sources="both"
    )
    heads = accuracy_grid(comparison, "selected").columns
    assert heads[-2:] == ["mean, one source", "mean, all sources"]
    assert len(heads) == 1 + 2 * (3 + 1) + 2
