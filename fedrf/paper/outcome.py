"""The outcome of an experiment: our tables beside the paper's, in a file that can be read without data or runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from fedrf import __version__
from fedrf.errors import reason
from fedrf.files import write_atomically
from fedrf.paper.jobs import JobStore
from fedrf.paper.plan import Cell, Experiment, Plan
from fedrf.paper.published import Published, PublishedTable, published

if TYPE_CHECKING:
    from fedrf.paper.setting import Setting

AVERAGE, PARTIAL_AVERAGE = "Avg", "Avg of measured"
HERE, ORACLE, PAPER = "here", "here, oracle", "paper"
MODES = ("full", "quick")
MAX_COLUMNS = 20  # of tables with more, only the columns that we measured are shown
DRAWN = "figure"  # the paper's table of what a figure plots


@dataclass(frozen=True)
class Table:
    """Values of a table, by row, column and seed; those of `oracles` are rows chosen with target labels."""

    name: str
    unit: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, list[float]]]
    oracles: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """Its name and unit."""
        return f"{self.name} in {self.unit}" if self.unit else self.name

    @property
    def average_column(self) -> str:
        """The name of the column with averages."""
        return AVERAGE if AVERAGE in self.columns else PARTIAL_AVERAGE

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
        One of `MODES`.
    stand_in
        Data that take the place of missing data, if any.
    seeds
        The seeds that were given; empty for those of the recipe.
    notes
        How the setting differs from the paper's.
    failures
        Cells without a value, and why.
    jobs, finished, seconds
        Number of jobs, number of finished jobs, and the sum of their seconds.
    """

    name: str
    title: str
    mode: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    failures: tuple[str, ...]
    jobs: int
    finished: int
    seconds: float
    written: str
    stand_in: str = ""
    seeds: tuple[int, ...] = ()
    version: str = __version__

    @property
    def published(self) -> Published:
        """The paper's numbers."""
        return published(self.name)

    @property
    def command(self) -> str:
        """The command that repeats the experiment."""
        quick = " --quick" if self.mode == "quick" else ""
        seeds = f" --seeds {','.join(map(str, self.seeds))}" if self.seeds else ""
        return f"fedrf paper run {self.name}{quick}{seeds}"

    @property
    def stem(self) -> str:
        """The name of its files, without suffix."""
        return f"{self.name}.{self.mode}"

    def table(self, name: str) -> Table:
        """Return one of our tables."""
        return next(table for table in self.tables if table.name == name)

    @property
    def num_seeds(self) -> int:
        """The largest number of values behind one entry; what is not random has one."""
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
        if len(columns) > MAX_COLUMNS and table.columns:
            columns = list(table.columns)
        columns.sort(key=lambda column: column in (AVERAGE, PARTIAL_AVERAGE))
        return tuple(sorted(columns, key=float) if all(map(_is_number, columns)) else columns)

    def lines(self, table: Table) -> list[Line]:
        """Return the lines of a table: for each row our values, and below them the paper's."""
        theirs, columns = self.published.tables.get(table.name), self.columns(table)
        lines = []
        for row in dict.fromkeys((*(theirs.rows if theirs else ()), *table.rows)):
            if row in table.rows:
                here = tuple(_shown(table, row, column) for column in columns)
                lines.append(Line(row, ORACLE if row in table.oracles else HERE, here))
            if theirs and row in theirs.rows:
                entries = theirs.rows[row] | _partial_average(theirs.rows[row], table)
                lines.append(Line(row, PAPER, tuple(_printed(entries.get(column)) for column in columns)))
        return lines

    def save(self, folder: Path) -> None:
        """Write the outcome as JSON."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        write_atomically(folder / f"{self.stem}.json", lambda path: path.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, folder: Path, name: str, mode: str) -> Outcome | None:
        """Return the outcome in a folder, if there is one; a `ValueError` names a file that cannot be read."""
        path = folder / f"{name}.{mode}.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            tables = tuple(
                Table(**table | {key: tuple(table[key]) for key in ("columns", "oracles")})
                for table in content.pop("tables")
            )
            lists = {key: tuple(content[key]) for key in ("notes", "failures", "seeds")}
            return cls(tables=tables, **content | lists)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} cannot be read ({reason(error)}); delete it and run {name} again") from None

    def as_json(self) -> dict[str, Any]:
        """Return the outcome with the paper's numbers."""
        theirs = self.published
        tables = {name: {"columns": table.columns, "rows": table.rows} for name, table in theirs.tables.items()}
        return asdict(self) | {"command": self.command, "place": theirs.place, "published": tables}


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


def _partial_average(entries: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """Return the paper's average over the columns that we measured, beside the one that it prints."""
    if PARTIAL_AVERAGE not in table.columns:
        return {}
    values = [entries.get(column) for column in table.columns if column != PARTIAL_AVERAGE]
    numbers = [value for value in values if isinstance(value, int | float)]
    return {PARTIAL_AVERAGE: round(fmean(numbers), 1)} if len(numbers) == len(values) else {}


def collect(
    experiment: Experiment, plan: Plan, store: JobStore, setting: Setting, errors: Mapping[str, str]
) -> Outcome:
    """Collect the results of all cells; `errors` has the reason for each job that failed."""
    values: dict[tuple[str, str, str], list[float]] = {}
    failures: dict[str, None] = {}
    results = {cell.job.digest: store.result(cell.job) for cell in plan.cells}
    for cell in plan.cells:
        result = results[cell.job.digest]
        if result is None:
            failures[f"{cell.place}: {errors.get(cell.job.digest, 'not run yet')}"] = None
        else:
            scale = 100 if plan.units.get(cell.table) == "%" else 1
            key = (cell.table, cell.row, cell.column)
            values.setdefault(key, []).append(scale * result["values"][cell.value])
    tables = {name: _table(name, unit, plan.cells, values) for name, unit in plan.units.items()}
    if experiment.has_average:
        printed = published(experiment.name).tables
        tables = {name: _with_average(table, printed.get(name)) for name, table in tables.items()}
    finished = [result for result in results.values() if result]
    return Outcome(
        experiment.name,
        experiment.title,
        "quick" if setting.quick else "full",
        (*tables.values(), *experiment.derive(tables)),
        plan.notes,
        tuple(failures),
        len(results),
        len(finished),
        sum(result["seconds"] for result in finished),
        f"{datetime.now():%Y-%m-%d %H:%M}",
        plan.stand_in,
        setting.given_seeds,
    )


def _table(name: str, unit: str, cells: Iterable[Cell], values: Mapping[tuple[str, str, str], list[float]]) -> Table:
    own = [cell for cell in cells if cell.table == name]
    columns = tuple(dict.fromkeys(cell.column for cell in own))
    rows = {
        row: {column: values[name, row, column] for column in columns if (name, row, column) in values}
        for row in dict.fromkeys(cell.row for cell in own)
    }
    return Table(name, unit, columns, rows, tuple(dict.fromkeys(cell.row for cell in own if cell.value == "oracle")))


def _with_average(table: Table, printed: PublishedTable | None) -> Table:
    """Add a column with the mean over the others, for rows that are complete; its name says if the paper has more."""
    others = {column for column in (printed.columns if printed else ()) if column != AVERAGE}
    name = PARTIAL_AVERAGE if others - set(table.columns) else AVERAGE
    rows = {}
    for row, entries in table.rows.items():
        is_complete = len(entries) == len(table.columns) > 1 and len({len(values) for values in entries.values()}) == 1
        average = [fmean(values) for values in zip(*entries.values(), strict=True)] if is_complete else None
        rows[row] = entries | ({name: average} if average else {})
    return replace(table, columns=(*table.columns, name), rows=rows)
