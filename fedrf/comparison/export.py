"""The files of a comparison: table.md, table.tex, table.csv and comparison.json."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from fedrf.adaptation.selection import BUILT_IN as SCORES
from fedrf.comparison.analysis import (
    below_baseline,
    choice_accuracies,
    differences_over_runs,
    differences_over_tasks,
)
from fedrf.comparison.rendering import as_latex, as_markdown
from fedrf.comparison.results import ACCURACIES, Accuracies, Comparison
from fedrf.files import write_atomically


def write_tables(comparison: Comparison) -> None:
    """Write table.md, table.tex, table.csv and comparison.json."""
    texts = {
        "table.md": as_markdown(comparison),
        "table.tex": as_latex(comparison),
        "comparison.json": json.dumps(as_json(comparison), indent=1) + "\n",
    }
    for name, text in texts.items():
        write_atomically(comparison.folder / name, partial(Path.write_text, data=text))
    write_atomically(comparison.folder / "table.csv", partial(_write_csv, rows=list(cell_rows(comparison))))


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return everything as plain values: the contents of comparison.json."""
    plan, statuses = comparison.plan, [result.status for result in comparison.runs.values()]
    return {
        "recipe": plan.recipe,
        "dataset": plan.dataset,
        "folder": str(comparison.folder),
        "tasks": [{"task": task.label, "sources": list(task.sources), "target": task.target} for task in plan.tasks],
        "variants": [{"variant": variant.name, "settings": variant.settings} for variant in plan.variants],
        "seeds": list(plan.seeds),
        "counts": {status: statuses.count(status) for status in ("finished", "failed", "unfinished")},
        "accuracy": {
            kind: {variant.name: _means(comparison, comparison.accuracies(variant, kind)) for variant in plan.variants}
            for kind in ACCURACIES
        },
        "significance": {
            "reference": plan.reference.name,
            "over_tasks_and_seeds": [test._asdict() for test in differences_over_runs(comparison)],
            "over_tasks": [test._asdict() for test in differences_over_tasks(comparison)],
        },
        "worse_than_source_only": _below_baseline(comparison),
        "choices": {name: _means(comparison, accuracies) for name, accuracies in choice_accuracies(comparison).items()},
        "notes": list(plan.notes),
        "cells": list(cell_rows(comparison)),
    }


def _means(comparison: Comparison, accuracies: Accuracies) -> dict[str, Any]:
    """Return the mean over all tasks, and that of each task."""
    return {
        "mean": comparison.mean_of(accuracies)._asdict(),
        **{task.label: comparison.mean_of(accuracies, [task])._asdict() for task in comparison.plan.tasks},
    }


def _below_baseline(comparison: Comparison) -> list[dict[str, Any]] | None:
    worse = below_baseline(comparison)
    if worse is None:
        return None
    return [{"variant": variant.name, "task": task.label, "difference": by} for variant, task, by in worse]


def cell_rows(comparison: Comparison) -> Iterable[dict[str, Any]]:
    """Return a row for each cell: the contents of table.csv."""
    for cell in comparison.plan.cells:
        result = comparison.result(cell)
        summary = result.summary
        yield {
            "task": cell.task.label,
            "sources": "+".join(cell.task.sources),
            "target": cell.task.target,
            "variant": cell.variant.name,
            "method": cell.variant.method,
            "seed": cell.seed,
            **{kind: result.accuracy(kind) for kind in ACCURACIES},
            "rounds": summary.get("rounds"),
            "bytes_total": summary["communication"]["bytes_total"] if summary else None,
            "seconds": summary["seconds"]["total"] if summary else None,
            "status": result.status,
            "folder": str(result.folder.relative_to(comparison.folder)),
            "error": result.error,
            **{f"score_{score}": summary.get("scores", {}).get(score) for score in SCORES},
        }
