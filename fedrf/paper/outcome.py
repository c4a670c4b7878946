"""The outcome of an experiment: our tables beside the paper's, in a file that can be read without data or runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from fedrf import __version__
from fedrf.files import write_atomically
from fedrf.paper.jobs import JobStore
from fedrf.paper.plan import Cell, Experiment, Plan
from fedrf.paper.published import Published, published

AVERAGE = "Avg"
HERE, PAPER = "here", "paper"
DRAWN = "figure"  # the paper's table of what a figure plots


@dataclass(frozen=True)
class Table:
    """Values of a table, by row, column and seed."""

    name: str
    unit: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, list[float]]]

    def mean(self, row: str, column: str) -> float | None:
        """Return the mean over seeds, if there is one."""
        values = self.rows.get(row, {}).get(column)
        return fmean(values) if values else None

    def spread(self, row: str, column: str) -> float | None:
        """Return the sample standard deviation over seeds, if there are several."""
        values = self.rows.get(row, {}).get(column, [])
        return stdev(values) if len(values) > 1 else None


class Line(NamedTuple):
    """One line of a table that shows our values or those of the paper."""

    row: str
    origin: str
    entries: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one experiment.

    Attributes
    ----------
    mode
        `quick` or `full`.
    notes
        How the setting differs from the paper's.
    failures
        Cells without a value, and why.
    jobs, seconds
        Number of jobs, and their times added up.
    """

    name: str
    title: str
    mode: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    failures: tuple[str, ...]
    jobs: int
    seconds: float
    written: str
    version: str = __version__

    @property
    def published(self) -> Published:
        """The paper's numbers."""
        return published(self.name)

    @property
    def command(self) -> str:
        """The command that repeats the experiment."""
        return f"fedrf paper run {self.name}{' --quick' if self.mode == 'quick' else ''}"

    def table(self, name: str) -> Table:
        """Return one of our tables."""
        return next(table for table in self.tables if table.name == name)

    @property
    def num_seeds(self) -> int:
        """The largest number of values behind one entry."""
        return max(
            (len(values) for table in self.tables for row in table.rows.values() for values in row.values()), default=0
        )

    @property
    def shown(self) -> tuple[Table, ...]:
        """Our tables, and empty ones for those of the paper that have no counterpart and are not drawn."""
        names = {table.name for table in self.tables} | {DRAWN}
        others = (Table(name, "", (), {}) for name in self.published.tables if name not in names)
        return (*self.tables, *others)

    def columns(self, table: Table) -> tuple[str, ...]:
        """Return the columns of our table and of the paper's: numbers by value, else in the paper's order."""
        theirs = self.published.tables.get(table.name)
        columns = list(dict.fromkeys((*(theirs.columns if theirs else ()), *table.columns)))
        # The average is the last column; numbers are sorted.
        columns.sort(key=lambda column: column == AVERAGE)
        return tuple(sorted(columns, key=float) if all(map(_is_number, columns)) else columns)

    def lines(self, table: Table) -> list[Line]:
        """Return the lines of a table: for each row our values, and below them the paper's."""
        theirs, columns = self.published.tables.get(table.name), self.columns(table)
        lines = []
        for row in dict.fromkeys((*(theirs.rows if theirs else ()), *table.rows)):
            if row in table.rows:
                here = tuple(_shown(table, row, column) for column in columns)
                lines.append(Line(row, HERE, here))
            if theirs and row in theirs.rows:
                entries = theirs.rows[row] | _comparable_average(theirs.rows[row], table)
                lines.append(Line(row, PAPER, tuple(_printed(entries.get(column)) for column in columns)))
        return lines

    def save(self, folder: Path) -> None:
        """Write the outcome as JSON."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        write_atomically(folder / f"{self.name}.json", lambda path: path.write_text(text))

    @classmethod
    def load(cls, folder: Path, name: str) -> Outcome | None:
        """Return the outcome in a folder, if there is one."""
        try:
            content = json.loads((folder / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        tables = tuple(Table(**table | {"columns": tuple(table["columns"])}) for table in content.pop("tables"))
        content |= {key: tuple(content[key]) for key in ("notes", "failures")}
        return cls(tables=tables, **content)


def _shown(table: Table, row: str, column: str) -> str:
    mean, spread = table.mean(row, column), table.spread(row, column)
    if mean is None:
        return "–"
    digits = 1 if table.unit == "%" else _digits(mean)
    return f"{mean:.{digits}f}" if spread is None else f"{mean:.{digits}f} ± {spread:.{digits}f}"


def _digits(value: float) -> int:
    """Return the number of decimals for four significant digits."""
    return 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _printed(entry: Any) -> str:
    if entry is None:
        return "–"
    if isinstance(entry, list):
        return f"{entry[0]:g} ± {entry[1]:g}"
    return entry if isinstance(entry, str) else f"{entry:g}"


def _comparable_average(entries: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """Return the paper's average over the columns that we have, if it prints an average and we lack a column."""
    if AVERAGE not in entries or not table.columns:
        return {}
    ours = [column for column in entries if column in table.columns and column != AVERAGE]
    values = [entries[column] for column in ours]
    if len(ours) == len(entries) - 1 or not values or not all(isinstance(value, int | float) for value in values):
        return {}
    return {AVERAGE: round(fmean(values), 1)}


def collect(experiment: Experiment, plan: Plan, store: JobStore, quick: bool, errors: Mapping[str, str]) -> Outcome:
    """Collect the results of all cells; `errors` has the reason for each job that failed."""
    values: dict[tuple[str, str, str], list[float]] = {}
    failures: dict[str, None] = {}
    results = {cell.job.digest: store.result(cell.job) for cell in plan.cells}
    for cell in plan.cells:
        result = results[cell.job.digest]
        if result is None:
            failures[f"{cell.row}, {cell.column}: {errors.get(cell.job.digest, 'not run yet')}"] = None
        else:
            scale = 100 if plan.units.get(cell.table) == "%" else 1
            values.setdefault(cell[4:] + cell[:2], []).append(scale * result["values"][cell.value])
    tables = {name: _table(name, unit, plan.cells, values) for name, unit in plan.units.items()}
    if experiment.has_average:
        tables = {name: _with_average(table) for name, table in tables.items()}
    derived = experiment.derive(tables)
    seconds = sum(result["seconds"] for result in results.values() if result)
    return Outcome(
        experiment.name,
        experiment.title,
        "quick" if quick else "full",
        (*tables.values(), *derived),
        plan.notes,
        tuple(failures),
        len(results),
        seconds,
        f"{datetime.now():%Y-%m-%d %H:%M}",
    )


def _table(name: str, unit: str, cells: Iterable[Cell], values: Mapping[tuple[str, str, str], list[float]]) -> Table:
    own = [cell for cell in cells if cell.table == name]
    columns = tuple(dict.fromkeys(cell.column for cell in own))
    rows = {
        row: {column: values[name, row, column] for column in columns if (name, row, column) in values}
        for row in dict.fromkeys(cell.row for cell in own)
    }
    return Table(name, unit, columns, rows)


def _with_average(table: Table) -> Table:
    """Add a column with the mean over the others, for rows that are complete: of each seed, if all have as many."""
    rows = {}
    for row, entries in table.rows.items():
        complete = len(entries) == len(table.columns) > 1 and len({len(values) for values in entries.values()}) == 1
        average = [fmean(values) for values in zip(*entries.values(), strict=True)] if complete else None
        rows[row] = entries | ({AVERAGE: average} if average else {})
    return Table(table.name, table.unit, (*table.columns, AVERAGE), rows)
