"""Remarks below the tables: how to read them, results below the baseline, and runs that failed."""

from __future__ import annotations

from collections.abc import Iterator

from fedrf.comparison.analysis import MIN_TASKS, below_baseline, differences_over_runs, differences_over_tasks
from fedrf.comparison.results import Comparison
from fedrf.comparison.significance import smallest_p
from fedrf.comparison.tables import format_p, format_points


def remarks(comparison: Comparison) -> list[str]:
    """Return the remarks, a sentence or two each."""
    plan = comparison.plan
    return [
        *(f"{task.label}: sources {', '.join(task.sources)}." for task in plan.tasks if task.all_sources),
        "Bytes and seconds are medians over runs; the first run of a call also starts the clients' processes.",
        *_on_significance(comparison),
        *_on_baseline(comparison),
        *_on_failures(comparison),
        *(f"{note}." for note in plan.notes),
    ]


def _on_significance(comparison: Comparison) -> Iterator[str]:
    tests = differences_over_runs(comparison)
    if not tests:
        return
    pairs = max(test.wins + test.losses for test in tests)
    least = f" The least p that is possible with {pairs} pairs that differ is {format_p(smallest_p(pairs))}."
    yield (
        "p is of Wilcoxon's signed-rank test, two-sided and exact up to 200 pairs; pairs that are "
        "equal are left out; Holm's correction is over all variants." + (least if smallest_p(pairs) > 0.01 else "")
    )
    few_tasks = f" With {MIN_TASKS} tasks or more there is also a test over tasks."
    enough_tasks = (
        " The test over means of tasks is free of that; tasks that share domains are not quite independent either."
    )
    yield (
        "Seeds of one task share their data and are not independent: p over runs may be too small."
        + (enough_tasks if differences_over_tasks(comparison) else few_tasks)
    )


def _on_baseline(comparison: Comparison) -> Iterator[str]:
    worse = below_baseline(comparison)
    baseline = next((variant.name for variant in comparison.plan.variants if variant.is_baseline), "")
    if worse:
        yield f"More than one point worse than {baseline}:"
        for name in dict.fromkeys(variant.name for variant, _, _ in worse):
            where = (f"{task.label} {format_points(by)}" for variant, task, by in worse if variant.name == name)
            yield f"{name}: {'; '.join(where)}."
    elif worse is not None and len(comparison.plan.variants) > 1:
        so_far = "" if comparison.is_complete else ", as far as runs are there"
        yield f"No variant is more than one point worse than {baseline} on any task{so_far}."


def _on_failures(comparison: Comparison) -> Iterator[str]:
    for cell in comparison.failed().values():
        error = comparison.result(cell).error
        yield f"Failed: {cell.variant.name} on {cell.task.label}, seed {cell.seed}: {error}."
