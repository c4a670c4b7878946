"""The tables of a comparison, independent of the format in which they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedrf.comparison.analysis import choice_accuracies, differences_over_runs, differences_over_tasks
from fedrf.comparison.results import Comparison, MeanAccuracy
from fedrf.comparison.significance import Difference
from fedrf.comparison.tasks import Task
from fedrf.comparison.variants import Variant
from fedrf.experiment.display import size

TITLES = {
    "final": "Accuracy on the target in %, after the last round",
    "selected": "The evaluation that was selected without target labels, by {score}, in %",
    "oracle": "Oracle (chosen with target labels): the best evaluation, in %",
}


class Entry(NamedTuple):
    """One field of a table; `best` if it is highlighted as the best of its column."""

    text: str
    best: bool = False


class Grid(NamedTuple):
    """The contents of one table; the first column holds names, the others numbers."""

    title: str
    columns: list[str]
    rows: list[list[Entry]]


def all_grids(comparison: Comparison) -> list[Grid]:
    """Return all tables, the accuracy after the last round first."""
    return [*(accuracy_grid(comparison, kind) for kind in TITLES), *analysis_grids(comparison)]


def analysis_grids(comparison: Comparison) -> list[Grid]:
    """Return the tables of statistical tests and of choices by score."""
    return [*significance_grids(comparison), *choice_grids(comparison)]


def accuracy_grid(comparison: Comparison, kind: str) -> Grid:
    """Return variants as rows, tasks and their mean as columns; for ``final`` also the bytes and seconds of a run."""
    plan, columns = comparison.plan, _columns(comparison)
    title = TITLES[kind].format(score=plan.select) + (
        f"; mean ± standard deviation over {len(plan.seeds)} seeds" if len(plan.seeds) > 1 else ""
    )
    rows = [[Entry(variant.name)] for variant in plan.variants]
    for column in columns:
        for row, entry in zip(rows, _accuracy_entries(comparison, column, kind), strict=True):
            row.append(entry)
    heads = _heads(columns)
    if kind == "final":
        heads += ["sent a run", "seconds a run"]
        for row, variant in zip(rows, plan.variants, strict=True):
            row += _cost_entries(comparison, variant)
    return Grid(title, heads, rows)


class Column(NamedTuple):
    """A task, or several tasks and the heading of their mean."""

    head: str
    tasks: Sequence[Task]


def _columns(comparison: Comparison) -> list[Column]:
    """Return all tasks and their mean; if some tasks have one source and others all, a mean of each kind."""
    tasks = comparison.plan.tasks
    single, joint = ([task for task in tasks if task.all_sources == kind] for kind in (False, True))
    kinds = {"mean, one source": single, "mean, all sources": joint} if single and joint else {"mean": tasks}
    means = [Column(head, members) for head, members in kinds.items() if len(members) > 1]
    return [*(Column(task.label, [task]) for task in tasks), *means]


def _heads(columns: Sequence[Column]) -> list[str]:
    return ["", *(column.head for column in columns)]


def _accuracy_entries(comparison: Comparison, column: Column, kind: str) -> list[Entry]:
    """Return a column's entry for each variant; only means without missing runs can be the best."""
    variants = comparison.plan.variants
    means = [comparison.mean(variant, column.tasks, kind) for variant in variants]
    percentages = [_percentage(mean) if mean.is_complete else None for mean in means]
    complete = [percentage for percentage in percentages if percentage is not None]
    return [
        Entry(
            _accuracy_text(comparison, variant, column, mean),
            percentage is not None and percentage == max(complete) and len(complete) > 1,
        )
        for variant, mean, percentage in zip(variants, means, percentages, strict=True)
    ]


def _percentage(mean: MeanAccuracy) -> float | None:
    return None if mean.value is None else round(100 * mean.value, 1)


def _accuracy_text(comparison: Comparison, variant: Variant, column: Column, mean: MeanAccuracy) -> str:
    statuses = {comparison.result(cell).status for cell in comparison.cells(variant) if cell.task in column.tasks}
    return "failed" if mean.value is None and "failed" in statuses else _format_mean(mean)


def _format_mean(mean: MeanAccuracy) -> str:
    if mean.value is None:
        return "–"
    spread = "" if mean.spread is None else f" ± {100 * mean.spread:.1f}"
    missing = "" if mean.is_complete else f" ({mean.runs} of {mean.wanted} runs)"
    return f"{100 * mean.value:.1f}{spread}{missing}"


def _cost_entries(comparison: Comparison, variant: Variant) -> list[Entry]:
    sent = comparison.median(variant, "communication", "bytes_total")
    seconds = comparison.median(variant, "seconds", "total")
    return [Entry("–" if sent is None else size(sent)), Entry("–" if seconds is None else f"{seconds:.1f}")]


def significance_grids(comparison: Comparison) -> list[Grid]:
    """Return the tests against the reference over all runs and, if there are enough tasks, over tasks."""
    against = f"Against {comparison.plan.reference.name}, in points"
    tests = {
        f"{against}: pairs of runs with the same task and seed": differences_over_runs(comparison),
        f"{against}: pairs of means of a task over seeds": differences_over_tasks(comparison),
    }
    heads = ["", "mean difference", "pairs", "better", "worse", "equal", "p", "p (Holm)"]
    return [Grid(title, heads, [_test_row(row) for row in rows]) for title, rows in tests.items() if rows]


def choice_grids(comparison: Comparison) -> list[Grid]:
    """Return the accuracy when each score chooses the variant, if there is a choice."""
    columns = _columns(comparison)
    rows = [
        [Entry(name), *(Entry(_format_mean(comparison.mean_of(values, column.tasks))) for column in columns)]
        for name, values in choice_accuracies(comparison).items()
    ]
    title = "Accuracy in % of the variant that a score without target labels chooses for each task and seed"
    return [Grid(title, _heads(columns), rows)] if rows else []


def _test_row(test: Difference) -> list[Entry]:
    counts = (str(number) for number in (test.pairs, test.wins, test.losses, test.ties))
    texts = (test.variant, format_points(test.mean), *counts, format_p(test.p), format_p(test.adjusted_p))
    return [Entry(text) for text in texts]


def format_points(difference: float) -> str:
    """Return a difference of accuracies in percentage points."""
    return f"{100 * difference:+.1f}".replace("-", "−")


def format_p(p: float) -> str:
    """Return a p-value with three digits."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
