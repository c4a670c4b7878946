"""What a recipe returns: the cells of its tables, and the job behind each cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedrf.paper.outcome import Outcome, Table
    from fedrf.paper.setting import Setting

UNITS = {"accuracy": "%"}


@dataclass(frozen=True, eq=False)
class Job:
    """One computation that returns named numbers.

    Attributes
    ----------
    function
        What computes it, as `package.module:function`: takes the settings, the folder of the job and a Ray session.
    settings
        Plain values that determine the result.
    digest
        Hash of the settings, which names the folder of the job.
    cost
        Approximate seconds in one thread of a processor of 2026; only ratios matter once jobs have been timed.
    """

    function: str
    settings: Mapping[str, Any]
    digest: str
    cost: float


class Cell(NamedTuple):
    """One value of a table, for one seed; cells with the same table, row and column are averaged.

    `value` is the name of the number that the job returns; `oracle` marks the row.
    """

    row: str
    column: str
    job: Job
    value: str = "accuracy"
    table: str = "accuracy"

    @property
    def place(self) -> str:
        """Where the value is shown: table, row and column."""
        return ", ".join(part for part in (self.table, self.row, self.column) if part != "accuracy")


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment.

    Attributes
    ----------
    notes
        How the setting differs from the paper's, one sentence each.
    stand_in
        Data that take the place of missing data, in a few words.
    units
        Unit of each table; values of tables in % are returned as fractions by the jobs.
    """

    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    stand_in: str = ""
    units: Mapping[str, str] = field(default_factory=lambda: dict(UNITS))


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes
    ----------
    name
        What `fedrf paper run` takes.
    title
        Description in a few words.
    recipe
        Returns the plan; raises `ValueError` if data are missing.
    draw
        Draws the figure.
    derive
        Returns tables that are computed from the others, such as fitted exponents.
    has_average
        Whether tables get a column with the mean of the others.
    """

    name: str
    title: str
    recipe: Callable[[Setting], Plan]
    draw: Callable[[Outcome], Figure] | None = None
    derive: Callable[[Mapping[str, Table]], list[Table]] = lambda tables: []
    has_average: bool = False


def job(function: str, settings: Mapping[str, Any], cost: float) -> Job:
    """Return a job that is named by the hash of its settings."""
    text = json.dumps([function, {key: value for key, value in settings.items() if key != "root"}], sort_keys=True)
    return Job(function, settings, hashlib.sha256(text.encode()).hexdigest()[:12], cost)
