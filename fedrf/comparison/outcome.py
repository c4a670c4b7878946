"""What the runs of a comparison came to, and figures over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from fedrf.adaptation.selection import SIGNS, best, evaluations
from fedrf.comparison.plan import Cell, Plan, Task, Variant
from fedrf.comparison.significance import Difference, differences
from fedrf.experiment.results import RunFolder

ACCURACIES = ("final", "selected", "oracle")
BASELINE = "source-only"
ORACLE = "oracle (chosen with target labels)"
MARGIN = 0.01  # so much worse than the baseline is worth a line
Figures = dict[tuple[Task, int], float]  # by task and seed
ENOUGH_TASKS = 6  # for a test over tasks alone: with fewer no p could be below 0.05


@dataclass(frozen=True)
class Outcome:
    """One run. `status` is finished, failed or unfinished."""

    folder: Path
    status: str = "unfinished"
    summary: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @classmethod
    def read(cls, folder: Path, select: str) -> Outcome:
        """Return what a run directory says; its evaluation is selected by `select`, whatever was so when it ran."""
        run = RunFolder(folder)
        summary = run.read_summary() or {}
        status = summary.get("status")
        if status == "failed":
            return cls(folder, status, error="; ".join(summary["failures"][-1:]) or "failed in an earlier call")
        if status != "finished":
            return cls(folder)
        chosen = best(evaluations(run.rows(), summary["target"]), select) or {}
        summary["target_accuracy"]["selected"] = chosen.get("accuracy")
        return cls(folder, status, summary)

    def accuracy(self, kind: str) -> float | None:
        """Return one of `ACCURACIES`, where the run finished and labels are known."""
        value: float | None = self.summary["target_accuracy"][kind] if self.summary else None
        return value


class Mean(NamedTuple):
    """Mean and sample standard deviation over seeds, of so many runs of those that were wanted."""

    value: float | None
    spread: float | None
    runs: int
    wanted: int

    @property
    def is_whole(self) -> bool:
        """Whether no run is missing."""
        return self.runs == self.wanted


@dataclass
class Comparison:
    """All runs of a plan by their digest; those that other calls have left in the folder are taken in."""

    plan: Plan
    folder: Path
    runs: dict[str, Outcome] = field(default_factory=dict)

    @classmethod
    def open(cls, plan: Plan, folder: Path) -> Comparison:
        """Return what is there already."""
        there = {path.name.rpartition("-")[2]: path for path in sorted(folder.glob("runs/*/*/seed-*"))}
        runs: dict[str, Outcome] = {}
        for cell in plan.cells:
            if cell.digest not in runs:
                runs[cell.digest] = Outcome.read(there.get(cell.digest, folder / cell.folder), plan.select)
        return cls(plan, folder, runs)

    def outcome(self, cell: Cell) -> Outcome:
        """Return what a cell came to, so far."""
        return self.runs[cell.digest]

    def to_do(self) -> list[Cell]:
        """Return the cells that are not finished, each run once."""
        open_cells = {cell.digest: cell for cell in reversed(self.plan.cells)}
        return [cell for cell in self.plan.cells if open_cells.get(cell.digest) is cell and not self._finished(cell)]

    def failed(self) -> dict[str, Cell]:
        """Return the runs that failed, each once, by digest."""
        return {cell.digest: cell for cell in self.plan.cells if self.outcome(cell).status == "failed"}

    def _finished(self, cell: Cell) -> bool:
        return self.outcome(cell).status == "finished"

    def cells(self, variant: Variant) -> Iterator[Cell]:
        """Return the cells of a variant."""
        return (cell for cell in self.plan.cells if cell.variant is variant)

    def accuracies(self, variant: Variant, kind: str = "final") -> Figures:
        """Return what is known."""
        found = {(cell.task, cell.seed): self.outcome(cell).accuracy(kind) for cell in self.cells(variant)}
        return {key: value for key, value in found.items() if value is not None}

    def mean(self, variant: Variant, tasks: Sequence[Task] = (), kind: str = "final") -> Mean:
        """Return mean and deviation over seeds of the mean over some tasks, or all."""
        return self.mean_of(self.accuracies(variant, kind), tasks)

    def mean_of(self, known: Figures, tasks: Sequence[Task] = ()) -> Mean:
        """Return mean and deviation over seeds of the mean over some tasks, or all."""
        tasks, seeds = tasks or self.plan.tasks, self.plan.seeds
        by_task = [[known[one, seed] for seed in seeds if (one, seed) in known] for one in tasks]
        whole = [[known[one, seed] for one in tasks] for seed in seeds if all((one, seed) in known for one in tasks)]
        by_seed = [fmean(one) for one in whole]
        return Mean(
            value=fmean(fmean(one) for one in by_task if one) if any(by_task) else None,
            spread=stdev(by_seed) if len(by_seed) > 1 else None,
            runs=sum(map(len, by_task)),
            wanted=len(tasks) * len(seeds),
        )

    def median(self, variant: Variant, section: str, key: str) -> float | None:
        """Return the median over all finished runs of a variant of a figure in their summaries."""
        found = [self.outcome(cell).summary[section][key] for cell in self.cells(variant) if self._finished(cell)]
        return median(found) if found else None

    def over_runs(self) -> list[Difference]:
        """Return how the variants differ from the reference, paired over tasks and seeds."""
        others = {one.name: self.accuracies(one) for one in self.plan.variants[1:]}
        return differences(self.accuracies(self.plan.reference), others)

    def over_tasks(self) -> list[Difference]:
        """Return how the variants differ from the reference, paired over tasks; nothing where these are few."""
        if len(self.plan.tasks) < ENOUGH_TASKS:
            return []
        means = {one.name: self._task_means(one) for one in self.plan.variants}
        return differences(means.pop(self.plan.reference.name), means)

    def _task_means(self, variant: Variant) -> dict[Task, float]:
        """Return the means of tasks of which all seeds are there: others would compare different seeds."""
        means = {task: self.mean(variant, [task]) for task in self.plan.tasks}
        return {task: one.value for task, one in means.items() if one.value is not None and one.is_whole}

    def choices(self) -> dict[str, Figures]:
        """Return the accuracy of the variant that each score would choose.

        Beside them what a fixed choice and an oracle come to. Only where all variants are finished; empty where
        variants are no settings to choose from, or the runs have no scores. Votes are left out: they are always sure.
        """
        chosen: dict[str, Figures] = {f"by {score}": {} for score in SIGNS}
        fixed, oracle = chosen.setdefault(f"always {self.plan.reference.name}", {}), chosen.setdefault(ORACLE, {})
        for place in product(self.plan.tasks, self.plan.seeds) if self.plan.is_choice else ():
            cells = [cell for cell in self.plan.cells if (cell.task, cell.seed) == place and not _votes(cell)]
            summaries = [self.outcome(cell).summary for cell in cells]
            rows = [one.get("scores", {}) | {"accuracy": one["target_accuracy"]["final"]} for one in summaries if one]
            if len(rows) < len(cells) or any(row["accuracy"] is None for row in rows):
                continue
            for score in SIGNS:
                row = best(rows, score)
                if row is not None and all(score in one for one in rows):
                    chosen[f"by {score}"][place] = row["accuracy"]
            fixed[place], oracle[place] = rows[0]["accuracy"], max(row["accuracy"] for row in rows)
        found = {name: figures for name, figures in chosen.items() if figures}
        return found if len(found) > 2 else {}

    def below_baseline(self) -> list[tuple[Variant, Task, float]] | None:
        """Return where a variant is worse than no alignment, and by how much; None where that is not among them."""
        baseline = next((one for one in self.plan.variants if one.name == BASELINE), None)
        if baseline is None:
            return None
        floor = self.accuracies(baseline)
        found = []
        for variant, task in product(self.plan.variants, self.plan.tasks):
            known = self.accuracies(variant)
            both = [known[key] - floor[key] for key in known if key in floor and key[0] == task]
            if both and fmean(both) < -MARGIN:
                found.append((variant, task, fmean(both)))
        return found

    @property
    def is_whole(self) -> bool:
        """Whether no figure is missing."""
        return all(self.mean(variant).is_whole for variant in self.plan.variants)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values: what comparison.json holds."""
        plan, below = self.plan, self.below_baseline()
        return {
            "recipe": plan.recipe,
            "dataset": plan.dataset,
            "folder": str(self.folder),
            "tasks": [{"task": one.label, "sources": list(one.sources), "target": one.target} for one in plan.tasks],
            "variants": [{"variant": one.name, "settings": one.settings} for one in plan.variants],
            "seeds": list(plan.seeds),
            "counts": {
                status: sum(one.status == status for one in self.runs.values())
                for status in ("finished", "failed", "unfinished")
            },
            "accuracy": {
                kind: {
                    one.name: {
                        "mean": self.mean(one, kind=kind)._asdict(),
                        **{task.label: self.mean(one, [task], kind)._asdict() for task in plan.tasks},
                    }
                    for one in plan.variants
                }
                for kind in ACCURACIES
            },
            "significance": {
                "reference": plan.reference.name,
                "over_tasks_and_seeds": [one._asdict() for one in self.over_runs()],
                "over_tasks": [one._asdict() for one in self.over_tasks()],
            },
            "worse_than_source_only": None
            if below is None
            else [{"variant": one.name, "task": task.label, "difference": by} for one, task, by in below],
            "choices": {
                name: {
                    "mean": self.mean_of(figures)._asdict(),
                    **{task.label: self.mean_of(figures, [task])._asdict() for task in plan.tasks},
                }
                for name, figures in self.choices().items()
            },
            "notes": list(plan.notes),
            "cells": list(self.lines()),
        }

    def lines(self) -> Iterable[dict[str, Any]]:
        """Return a line for each cell, with everything: what table.csv holds."""
        for cell in self.plan.cells:
            outcome = self.outcome(cell)
            summary = outcome.summary
            yield {
                "task": cell.task.label,
                "sources": "+".join(cell.task.sources),
                "target": cell.task.target,
                "variant": cell.variant.name,
                "method": cell.variant.method,
                "seed": cell.seed,
                **{kind: outcome.accuracy(kind) for kind in ACCURACIES},
                "rounds": summary.get("rounds"),
                "bytes_total": summary["communication"]["bytes_total"] if summary else None,
                "seconds": summary["seconds"]["total"] if summary else None,
                "status": outcome.status,
                "folder": str(outcome.folder.relative_to(self.folder)),
                "error": outcome.error,
                **{f"score_{score}": summary.get("scores", {}).get(score) for score in SIGNS},
            }


def _votes(cell: Cell) -> bool:
    return cell.config.federation.prediction == "vote"
