"""Results of the runs of a comparison, and their means over tasks and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from fedrf.adaptation.selection import best, evaluations
from fedrf.comparison.plan import Cell, ComparisonPlan
from fedrf.comparison.tasks import Task
from fedrf.comparison.variants import Variant
from fedrf.experiment.results import RunFolder

ACCURACIES = ("final", "selected", "oracle")
Accuracies = dict[tuple[Task, int], float]  # by task and seed


@dataclass(frozen=True)
class CellResult:
    """Result of one run.

    Attributes
    ----------
    folder
        The run directory.
    status
        ``finished``, ``failed`` or ``unfinished``.
    summary
        The contents of summary.json; empty unless the run is finished.
    error
        Why the run failed.
    """

    folder: Path
    status: str = "unfinished"
    summary: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @classmethod
    def read(cls, folder: Path, select: str) -> CellResult:
        """Read a run directory; `select` replaces the score by which the run itself selected an evaluation."""
        run = RunFolder(folder)
        summary = run.read_summary() or {}
        status = summary.get("status")
        if status == "failed":
            return cls(folder, status, error="; ".join(summary["failures"][-1:]) or "failed in an earlier call")
        if status != "finished":
            return cls(folder)
        selected = best(evaluations(run.rows(), summary["target"]), select) or {}
        summary["target_accuracy"]["selected"] = selected.get("accuracy")
        return cls(folder, status, summary)

    def accuracy(self, kind: str) -> float | None:
        """Return one of `ACCURACIES`; None unless the run is finished and the target has labels."""
        value: float | None = self.summary["target_accuracy"][kind] if self.summary else None
        return value


class MeanAccuracy(NamedTuple):
    """Mean and sample standard deviation over seeds, of `runs` out of `wanted` runs."""

    value: float | None
    spread: float | None
    runs: int
    wanted: int

    @property
    def is_complete(self) -> bool:
        """Whether no run is missing."""
        return self.runs == self.wanted


@dataclass
class Comparison:
    """The results of all runs of a plan by their digest, including runs that earlier calls left in the folder."""

    plan: ComparisonPlan
    folder: Path
    runs: dict[str, CellResult] = field(default_factory=dict)

    @classmethod
    def open(cls, plan: ComparisonPlan, folder: Path) -> Comparison:
        """Read the results that the folder already holds."""
        folders = {path.name.rpartition("-")[2]: path for path in sorted(folder.glob("runs/*/*/seed-*"))}
        runs: dict[str, CellResult] = {}
        for cell in plan.cells:
            if cell.digest not in runs:
                runs[cell.digest] = CellResult.read(folders.get(cell.digest, folder / cell.folder), plan.select)
        return cls(plan, folder, runs)

    def result(self, cell: Cell) -> CellResult:
        """Return the result of a cell so far."""
        return self.runs[cell.digest]

    def pending(self) -> list[Cell]:
        """Return the cells that are not finished, one for each run."""
        first = {cell.digest: cell for cell in reversed(self.plan.cells)}
        return [cell for cell in self.plan.cells if first.get(cell.digest) is cell and not self._is_finished(cell)]

    def failed(self) -> dict[str, Cell]:
        """Return the runs that failed, by digest."""
        return {cell.digest: cell for cell in self.plan.cells if self.result(cell).status == "failed"}

    def _is_finished(self, cell: Cell) -> bool:
        return self.result(cell).status == "finished"

    def cells(self, variant: Variant) -> Iterator[Cell]:
        """Return the cells of a variant."""
        return (cell for cell in self.plan.cells if cell.variant is variant)

    def accuracies(self, variant: Variant, kind: str = "final") -> Accuracies:
        """Return the accuracies of the runs that have one."""
        values = {(cell.task, cell.seed): self.result(cell).accuracy(kind) for cell in self.cells(variant)}
        return {key: value for key, value in values.items() if value is not None}

    def mean(self, variant: Variant, tasks: Sequence[Task] = (), kind: str = "final") -> MeanAccuracy:
        """Return mean and deviation over seeds of a variant's mean over the given tasks; default all tasks."""
        return self.mean_of(self.accuracies(variant, kind), tasks)

    def mean_of(self, accuracies: Accuracies, tasks: Sequence[Task] = ()) -> MeanAccuracy:
        """Return mean and deviation over seeds of the mean over the given tasks; default all tasks."""
        tasks, seeds = tasks or self.plan.tasks, self.plan.seeds
        by_task = [[accuracies[task, seed] for seed in seeds if (task, seed) in accuracies] for task in tasks]
        complete = [seed for seed in seeds if all((task, seed) in accuracies for task in tasks)]
        by_seed = [fmean([accuracies[task, seed] for task in tasks]) for seed in complete]
        return MeanAccuracy(
            value=fmean(fmean(values) for values in by_task if values) if any(by_task) else None,
            spread=stdev(by_seed) if len(by_seed) > 1 else None,
            runs=sum(map(len, by_task)),
            wanted=len(tasks) * len(seeds),
        )

    def median(self, variant: Variant, section: str, key: str) -> float | None:
        """Return the median of a summary's entry over the finished runs of a variant."""
        values = [self.result(cell).summary[section][key] for cell in self.cells(variant) if self._is_finished(cell)]
        return median(values) if values else None

    @property
    def is_complete(self) -> bool:
        """Whether no accuracy is missing."""
        return all(self.mean(variant).is_complete for variant in self.plan.variants)
