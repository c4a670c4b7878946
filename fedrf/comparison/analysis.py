"""Analysis of a comparison: statistical tests, accuracy when a score chooses the variant, and the baseline."""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import Any

from fedrf.adaptation.selection import BUILT_IN as SCORES
from fedrf.adaptation.selection import best
from fedrf.comparison.results import Accuracies, Comparison
from fedrf.comparison.significance import Difference, paired_differences
from fedrf.comparison.tasks import Task
from fedrf.comparison.variants import Variant

ORACLE = "oracle (chosen with target labels)"
MARGIN = 0.01  # a larger loss of accuracy against the baseline is reported
MIN_TASKS = 6  # for a test over tasks alone: with fewer, no p can be below 0.05


def differences_over_runs(comparison: Comparison) -> list[Difference]:
    """Test the variants against the reference, paired over tasks and seeds."""
    plan = comparison.plan
    others = {variant.name: comparison.accuracies(variant) for variant in plan.variants[1:]}
    return paired_differences(comparison.accuracies(plan.reference), others)


def differences_over_tasks(comparison: Comparison) -> list[Difference]:
    """Test the variants against the reference, paired over tasks; empty with fewer than `MIN_TASKS` tasks."""
    plan = comparison.plan
    if len(plan.tasks) < MIN_TASKS:
        return []
    means = {variant.name: _task_means(comparison, variant) for variant in plan.variants}
    return paired_differences(means.pop(plan.reference.name), means)


def _task_means(comparison: Comparison, variant: Variant) -> dict[Task, float]:
    """Return the means of tasks for which all seeds are finished; others would compare different seeds."""
    means = {task: comparison.mean(variant, [task]) for task in comparison.plan.tasks}
    return {task: mean.value for task, mean in means.items() if mean.value is not None and mean.is_complete}


def choice_accuracies(comparison: Comparison) -> dict[str, Accuracies]:
    """Return the accuracy of the variant that each score chooses, and of a fixed choice and an oracle.

    A task and seed counts only if all its variants are finished. The result is empty if the variants are not settings
    to choose from, or if the runs have no scores. Variants that predict by majority vote are left out, because votes
    are always confident.
    """
    plan = comparison.plan
    fixed = f"always {plan.reference.name}"
    names = (*(f"by {score}" for score in SCORES), fixed, ORACLE)
    accuracies: dict[str, Accuracies] = {name: {} for name in names}
    for key in product(plan.tasks, plan.seeds) if plan.is_choice else ():
        rows = _scored_variants(comparison, *key)
        if not rows:
            continue
        for score in SCORES:
            row = best(rows, score)
            if row is not None and all(score in other for other in rows):
                accuracies[f"by {score}"][key] = row["accuracy"]
        accuracies[fixed][key] = rows[0]["accuracy"]
        accuracies[ORACLE][key] = max(row["accuracy"] for row in rows)
    accuracies = {name: values for name, values in accuracies.items() if values}
    return accuracies if len(accuracies) > 2 else {}


def _scored_variants(comparison: Comparison, task: Task, seed: int) -> list[dict[str, Any]]:
    """Return scores and accuracy of each variant that does not vote; empty if one of them has no accuracy."""
    rows = []
    for cell in comparison.plan.cells:
        if (cell.task, cell.seed) != (task, seed) or cell.config.federation.prediction == "vote":
            continue
        result = comparison.result(cell)
        accuracy = result.accuracy("final")
        if accuracy is None:
            return []
        rows.append(result.summary.get("scores", {}) | {"accuracy": accuracy})
    return rows


def below_baseline(comparison: Comparison) -> list[tuple[Variant, Task, float]] | None:
    """Return where a variant is worse than the baseline, and by how much; None without the baseline."""
    plan = comparison.plan
    baseline = next((variant for variant in plan.variants if variant.is_baseline), None)
    if baseline is None:
        return None
    floor = comparison.accuracies(baseline)
    worse = []
    for variant, task in product(plan.variants, plan.tasks):
        accuracies = comparison.accuracies(variant)
        differences = [accuracies[key] - floor[key] for key in accuracies if key in floor and key[0] == task]
        if differences and fmean(differences) < -MARGIN:
            worse.append((variant, task, fmean(differences)))
    return worse
