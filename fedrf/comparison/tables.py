"""The tables of a comparison: for people (Markdown, a terminal), for papers (LaTeX) and for programs (CSV, JSON)."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedrf.comparison.outcome import BASELINE, ENOUGH_TASKS, Comparison, Mean
from fedrf.comparison.plan import Task, Variant
from fedrf.comparison.significance import Difference, smallest_p
from fedrf.experiment.display import size
from fedrf.files import write_atomically

TITLES = {
    "final": "Accuracy on the target in %, after the last round",
    "selected": "The evaluation that was selected without target labels, by {score}, in %",
    "oracle": "Oracle (chosen with target labels): the best evaluation, in %",
}
LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "→": r"$\rightarrow$",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "≥": r"$\geq$",
}
WIDEST = 10_000  # characters, more than any table has
PREAMBLE = "% Needs \\usepackage{booktabs}; take it in with \\input.\n"


class Entry(NamedTuple):
    """One field of a table."""

    text: str
    best: bool = False


class Grid(NamedTuple):
    """One table, however it will be written; the first column has names, the others figures."""

    title: str
    columns: list[str]
    rows: list[list[Entry]]


def grids(comparison: Comparison) -> list[Grid]:
    """Return all tables, the headline first."""
    return [*(accuracy_grid(comparison, kind) for kind in TITLES), *further_grids(comparison)]


def further_grids(comparison: Comparison) -> list[Grid]:
    """Return all tables but those of accuracies."""
    return [*significance_grids(comparison), *choice_grids(comparison)]


def accuracy_grid(comparison: Comparison, kind: str) -> Grid:
    """Return variants in rows, tasks and their mean in columns; the headline also has bytes and seconds of a run."""
    plan, columns = comparison.plan, _columns(comparison)
    title = TITLES[kind].format(score=plan.select) + (
        f"; mean ± standard deviation over {len(plan.seeds)} seeds" if len(plan.seeds) > 1 else ""
    )
    rows = [[Entry(variant.name)] for variant in plan.variants]
    for column in columns:
        means = [comparison.mean(variant, column.tasks, kind) for variant in plan.variants]
        whole = [_rounded(one.value) for one in means if one.value is not None and one.is_whole]
        for row, variant, one in zip(rows, plan.variants, means, strict=True):
            is_best = one.value is not None and one.is_whole and _rounded(one.value) == max(whole)
            row.append(Entry(_written(comparison, variant, column, one), is_best and len(whole) > 1))
    heads = _heads(columns)
    if kind == "final":
        heads += ["sent a run", "seconds a run"]
        for row, variant in zip(rows, plan.variants, strict=True):
            sent = comparison.median(variant, "communication", "bytes_total")
            seconds = comparison.median(variant, "seconds", "total")
            row += [Entry("–" if sent is None else size(sent)), Entry("–" if seconds is None else f"{seconds:.1f}")]
    return Grid(title, heads, rows)


class Column(NamedTuple):
    """A task, or some of which there is a mean."""

    head: str
    tasks: Sequence[Task]


def _columns(comparison: Comparison) -> list[Column]:
    """Return all tasks and their mean; where some have one source and others all, a mean for each kind."""
    tasks = comparison.plan.tasks
    alone, together = ([task for task in tasks if task.together == kind] for kind in (False, True))
    kinds = {"mean, one source": alone, "mean, all sources": together} if alone and together else {"mean": tasks}
    means = [Column(head, several) for head, several in kinds.items() if len(several) > 1]
    return [*(Column(task.label, [task]) for task in tasks), *means]


def _heads(columns: Sequence[Column]) -> list[str]:
    return ["", *(column.head for column in columns)]


def _rounded(value: float) -> float:
    return round(100 * value, 1)


def _written(comparison: Comparison, variant: Variant, column: Column, mean: Mean) -> str:
    statuses = {comparison.outcome(cell).status for cell in comparison.cells(variant) if cell.task in column.tasks}
    return "failed" if mean.value is None and "failed" in statuses else _percentage(mean)


def _percentage(mean: Mean) -> str:
    if mean.value is None:
        return "–"
    spread = "" if mean.spread is None else f" ± {100 * mean.spread:.1f}"
    some = "" if mean.is_whole else f" ({mean.runs} of {mean.wanted} runs)"
    return f"{100 * mean.value:.1f}{spread}{some}"


def significance_grids(comparison: Comparison) -> list[Grid]:
    """Return how variants differ from the reference, over all runs and, where these are enough, over tasks."""
    against = f"Against {comparison.plan.reference.name}, in points"
    tests = {
        f"{against}: pairs of runs with the same task and seed": comparison.over_runs(),
        f"{against}: pairs of means of a task over seeds": comparison.over_tasks(),
    }
    heads = ["", "mean difference", "pairs", "better", "worse", "equal", "p", "p (Holm)"]
    return [Grid(title, heads, [_difference_row(one) for one in found]) for title, found in tests.items() if found]


def choice_grids(comparison: Comparison) -> list[Grid]:
    """Return what choosing a variant by each score comes to, where there is a choice."""
    columns = _columns(comparison)
    rows = [
        [Entry(name), *(Entry(_percentage(comparison.mean_of(figures, column.tasks))) for column in columns)]
        for name, figures in comparison.choices().items()
    ]
    title = "Accuracy in % of the variant that a score without target labels chooses for each task and seed"
    return [Grid(title, _heads(columns), rows)] if rows else []


def _difference_row(one: Difference) -> list[Entry]:
    counts = (str(number) for number in (one.pairs, one.wins, one.losses, one.ties))
    texts = (one.variant, _points(one.mean), *counts, _p(one.p), _p(one.adjusted_p))
    return [Entry(text) for text in texts]


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}".replace("-", "−")


def _p(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def remarks(comparison: Comparison) -> list[str]:
    """Return what must be said beside the tables."""
    plan, tests = comparison.plan, comparison.over_runs()
    said = [f"{task.label}: sources {', '.join(task.sources)}." for task in plan.tasks if task.together]
    said.append("Bytes and seconds are medians over runs; the first run of a call also starts the clients' processes.")
    if tests:
        most = max(one.wins + one.losses for one in tests)
        least = f" The least p that is possible with {most} pairs that differ is {_p(smallest_p(most))}."
        said.append(
            "p is of Wilcoxon's signed-rank test, two-sided and exact up to 200 pairs; pairs that are "
            "equal are left out; Holm's correction is over all variants." + (least if smallest_p(most) > 0.01 else "")
        )
        few = f" With {ENOUGH_TASKS} tasks or more there is also a test over tasks."
        enough = (
            " The test over means of tasks is free of that; tasks that share domains are not quite independent either."
        )
        said.append(
            "Seeds of one task share their data and are not independent: p over runs may be too small."
            + (enough if comparison.over_tasks() else few)
        )
    below = comparison.below_baseline()
    if below:
        said.append(f"More than one point worse than {BASELINE}:")
        for name in dict.fromkeys(variant.name for variant, _, _ in below):
            where = (f"{task.label} {_points(by)}" for variant, task, by in below if variant.name == name)
            said.append(f"{name}: {'; '.join(where)}.")
    elif below is not None and len(plan.variants) > 1:
        known = "" if comparison.is_whole else ", as far as runs are there"
        said.append(f"No variant is more than one point worse than {BASELINE} on any task{known}.")
    for cell in comparison.failed().values():
        error = comparison.outcome(cell).error
        said.append(f"Failed: {cell.variant.name} on {cell.task.label}, seed {cell.seed}: {error}.")
    return [*said, *(f"{note}." for note in plan.notes)]


def as_markdown(comparison: Comparison) -> str:
    """Return all tables and remarks as Markdown."""

    def row(texts: Sequence[str]) -> str:
        return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"

    plan = comparison.plan
    parts = [f"# {plan.recipe}: variants {len(plan.variants)}, tasks {len(plan.tasks)}, seeds {len(plan.seeds)}"]
    for title, columns, rows in grids(comparison):
        bold = [[f"**{entry.text}**" if entry.best else entry.text for entry in line] for line in rows]
        rule = ["---", *["---:"] * (len(columns) - 1)]
        parts.append("\n".join([f"**{title}**", "", row(columns), row(rule), *map(row, bold)]))
    parts.append("\n".join(f"- {one}" for one in remarks(comparison)))
    return "\n\n".join(parts) + "\n"


def as_latex(comparison: Comparison) -> str:
    """Return all tables as LaTeX floats, and the remarks after them."""

    def row(texts: Sequence[str]) -> str:
        return " & ".join(texts) + r" \\"

    parts = [PREAMBLE]
    for title, columns, rows in grids(comparison):
        written = [[_latex(entry.text) for entry in line] for line in rows]
        bold = [
            [rf"\textbf{{{text}}}" if entry.best else text for entry, text in zip(line, texts, strict=True)]
            for line, texts in zip(rows, written, strict=True)
        ]
        inner = [r"\toprule", row([_latex(one) for one in columns]), r"\midrule", *map(row, bold), r"\bottomrule"]
        layout = "l" + "r" * (len(columns) - 1)
        body = [rf"\begin{{tabular}}{{{layout}}}", *inner, r"\end{tabular}"]
        parts.append(
            "\n".join([r"\begin{table}", r"\centering", rf"\caption{{{_latex(title)}}}", *body, r"\end{table}", ""])
        )
    return "\n".join([*parts, *(_latex(one) + "\n" for one in remarks(comparison))])


def _latex(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in text)


def write_tables(comparison: Comparison) -> None:
    """Write table.md, table.tex, table.csv and comparison.json."""
    texts = {
        "table.md": as_markdown(comparison),
        "table.tex": as_latex(comparison),
        "comparison.json": json.dumps(comparison.as_json(), indent=1) + "\n",
    }
    for name, text in texts.items():
        write_atomically(comparison.folder / name, partial(Path.write_text, data=text))

    def write_lines(path: Path) -> None:
        lines = list(comparison.lines())
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)

    write_atomically(comparison.folder / "table.csv", write_lines)


def print_tables(comparison: Comparison, console: Console) -> None:
    """Print the headline, the tests and the remarks."""
    for grid in (accuracy_grid(comparison, "final"), *further_grids(comparison)):
        table = Table(box=None, pad_edge=False)
        for number, column in enumerate(grid.columns):
            table.add_column(escape(column), justify="right" if number else "left", no_wrap=True)
        for line in grid.rows:
            table.add_row(*(f"[bold]{escape(one.text)}[/bold]" if one.best else escape(one.text) for one in line))
        console.print(f"\n{escape(grid.title)}\n")
        # As wide as it is: a figure that is cut off tells nothing.
        table.width = console.measure(table, options=console.options.update(max_width=WIDEST)).maximum
        console.print(table, crop=False)
    console.print()
    for one in remarks(comparison):
        console.print(escape(one))
    console.print(f"Tables and runs: {escape(str(comparison.folder))}", soft_wrap=True)
