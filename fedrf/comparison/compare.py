"""Run the cells of a comparison one after the other, and update the tables after each run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedrf.comparison.export import write_tables
from fedrf.comparison.plan import Cell, ComparisonPlan
from fedrf.comparison.results import CellResult, Comparison
from fedrf.data.domains import clients_of
from fedrf.errors import reason
from fedrf.experiment.disk import check_writable
from fedrf.experiment.display import percent
from fedrf.experiment.interrupts import Interrupts
from fedrf.experiment.run import run_in
from fedrf.federation.checkpoints import files_root, keep_final_weights
from fedrf.files import locked

if TYPE_CHECKING:
    from fedrf.runtime.ray import RaySession


def compare(
    plan: ComparisonPlan,
    folder: Path,
    *,
    local: bool = False,
    address: str | None = None,
    session: RaySession | None = None,
) -> tuple[Comparison, bool]:
    """Run all cells that are not finished; return the comparison, and False if it was interrupted.

    A run that fails is recorded, and the others continue.
    """
    _check_folder(folder)
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        if not local and session is None and (missing := Comparison.open(plan, folder).pending()):
            session = stack.enter_context(_connect(address, missing))
        folder.mkdir(parents=True, exist_ok=True)
        busy = f"--out: another comparison is running in {folder}; choose another folder"
        stack.enter_context(locked(folder, busy))
        comparison = Comparison.open(plan, folder)
        pending = comparison.pending()
        printer = ProgressPrinter(len(comparison.runs), len(pending))
        write_tables(comparison)
        for cell in pending:
            if interrupts.wanted or not _run(comparison, cell, local, session, interrupts):
                return comparison, False
            write_tables(comparison)
            printer.run_ended(cell, comparison.result(cell))
    return comparison, True


@contextmanager
def _connect(address: str | None, cells: list[Cell]) -> Iterator[RaySession]:
    """Connect to Ray; a `ValueError` if it lacks the resources of one of the runs."""
    from fedrf.runtime.ray import RaySession

    with RaySession(address) as session:
        federations = {(*clients_of(cell.config), cell.config.resources.model_dump_json()): cell for cell in cells}
        for cell in federations.values():
            sources, target = clients_of(cell.config)
            session.check_resources((*sources, target), cell.config.resources)
        yield session


def _run(comparison: Comparison, cell: Cell, local: bool, session: RaySession | None, interrupts: Interrupts) -> bool:
    """Run one cell; return whether it finished or failed without being interrupted."""
    folder = comparison.result(cell).folder
    try:
        result = run_in(cell.config, folder, local=local, session=session, observe=lambda _: interrupts.wanted)
    except Exception as error:  # an error in one run must not end the others
        comparison.runs[cell.digest] = CellResult(folder, "failed", error=f"{type(error).__name__}: {reason(error)}")
        return True
    comparison.runs[cell.digest] = CellResult.read(folder, comparison.plan.select)
    if result.finished:
        root = files_root(folder, cell.config.track.storage)
        keep_final_weights(root, cell.task.target)  # the checkpoints of hundreds of runs would fill the disk
    return result.finished and not interrupts.wanted


def _check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, or that holds anything but a comparison."""
    check_writable("--out", folder)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "comparison.json").exists():
        raise ValueError(f"--out: {folder} is not empty and holds no comparison; choose another folder")


def new_folder(plan: ComparisonPlan) -> Path:
    """Return the default folder of a comparison, with the current time in its name."""
    return Path("comparisons") / f"{plan.recipe}-{datetime.now():%Y%m%d-%H%M%S}"


class ProgressPrinter:
    """Prints a line on standard error for each run that ends, with the estimated time for the remaining runs."""

    def __init__(self, total: int, pending: int) -> None:
        self.total, self.pending, self.ended = total, pending, 0
        self.started = time.monotonic()
        if pending < total:
            self._print(f"{total - pending} of {total} runs are already finished")

    def run_ended(self, cell: Cell, result: CellResult) -> None:
        """Print the result of a run."""
        self.ended += 1
        left = self.pending - self.ended
        seconds = (time.monotonic() - self.started) / self.ended * left
        estimate = f", about {format_duration(seconds)} left" if left else ""
        text = percent(result.accuracy("final")) if result.summary else f"failed: {result.error}"
        position = f"{self.total - left}/{self.total}{estimate}"
        self._print(f"[{position}] {cell.variant.name}, {cell.task.label}, seed {cell.seed}: {text}")

    @staticmethod
    def _print(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """Return a duration as text.

    >>> format_duration(42), format_duration(600), format_duration(3 * 3600)
    ('42 s', '10 min', '3.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
