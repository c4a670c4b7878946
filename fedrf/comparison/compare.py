"""Runs the cells of a comparison one after the other; whatever happens, the tables so far are written."""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedrf.comparison.outcome import Comparison, Outcome
from fedrf.comparison.plan import Cell, Plan
from fedrf.comparison.tables import write_tables
from fedrf.errors import reason
from fedrf.experiment.display import percent
from fedrf.experiment.interrupts import Interrupts
from fedrf.experiment.run import run_on
from fedrf.federation.checkpoints import keep_final_weights

if TYPE_CHECKING:
    from fedrf.runtime.ray import RaySession


def compare(
    plan: Plan, folder: Path, *, local: bool = False, address: str | None = None, session: RaySession | None = None
) -> tuple[Comparison, bool]:
    """Run what is not there yet; return the comparison, and whether it came to its end or was interrupted.

    A run that fails is noted, and the others go on.
    """
    _claim(folder)
    with ExitStack() as stack:
        stack.enter_context(_alone_in(folder))
        comparison = Comparison.open(plan, folder)
        to_do = comparison.to_do()
        announcer = Announcer(len(comparison.runs), len(to_do))
        write_tables(comparison)
        interrupts = stack.enter_context(Interrupts())
        if to_do and not local and session is None:
            from fedrf.runtime.ray import RaySession

            session = stack.enter_context(RaySession(address))
        for cell in to_do:
            if interrupts.wanted or not _run(comparison, cell, local, session, interrupts):
                return comparison, False
            write_tables(comparison)
            announcer.ended(cell, comparison.outcome(cell))
    return comparison, True


def _run(comparison: Comparison, cell: Cell, local: bool, session: RaySession | None, interrupts: Interrupts) -> bool:
    """Run one cell; tell whether it ended, well or not, and was not interrupted."""
    folder = comparison.outcome(cell).folder
    try:
        result = run_on(cell.config, folder, local=local, session=session, observe=lambda _: interrupts.wanted)
    except Exception as error:  # whatever went wrong with one run need not go wrong with the next
        comparison.runs[cell.digest] = Outcome(folder, "failed", error=f"{type(error).__name__}: {reason(error)}")
        return True
    comparison.runs[cell.digest] = Outcome.read(folder, comparison.plan.select)
    if result.finished:
        keep_final_weights(folder, cell.task.target)  # hundreds of runs would fill any disk
    return result.finished and not interrupts.wanted


def _claim(folder: Path) -> None:
    """Make the folder of a comparison; one that holds anything else is not touched."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out: {folder} is a file")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "comparison.json").exists():
        raise ValueError(f"--out: {folder} holds something that is no comparison; name another folder")
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other calls out of the folder: two would run the same cells in the same places."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"--out: another comparison is at work in {folder}") from None
        yield


def new_folder(plan: Plan) -> Path:
    """Return a name for the folder of a comparison for which none was given."""
    return Path("comparisons") / f"{plan.recipe}-{datetime.now():%Y%m%d-%H%M%S}"


class Announcer:
    """A line on standard error for each run that ends, and how long the others will take."""

    def __init__(self, total: int, to_do: int) -> None:
        self.total, self.to_do, self.done = total, to_do, 0
        self.began = time.monotonic()
        if to_do < total:
            self._say(f"{total - to_do} of {total} runs are there already")

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        """Tell what a run came to."""
        self.done += 1
        left = self.to_do - self.done
        seconds = (time.monotonic() - self.began) / self.done * left
        rest = f", about {duration(seconds)} left" if left else ""
        result = percent(outcome.accuracy("final")) if outcome.summary else f"failed: {outcome.error}"
        place = f"{self.total - left}/{self.total}{rest}"
        self._say(f"[{place}] {cell.variant.name}, {cell.task.label}, seed {cell.seed}: {result}")

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Write a time for people.

    >>> duration(42), duration(600), duration(3 * 3600)
    ('42 s', '10 min', '3.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
