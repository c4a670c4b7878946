"""Tables of `fedrf data list` and `fedrf data check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedrf.config.registry import DATASETS
from fedrf.data.availability import Availability
from fedrf.data.check import ClientShare, DataReport, DomainCheck

MAX_CLASS_COLUMNS = 12  # more classes are rows
MAX_LISTED_FILES = 20  # corrupt files of a domain that are listed
MARKS = {"ok": "[green]ok[/]", "missing": "[yellow]missing[/]", "wrong": "[red]wrong[/]", "corrupt": "[red]corrupt[/]"}


def print_availability(datasets: Sequence[Availability], root: Path | None, console: Console) -> None:
    """Print which data sets are there as a table, and where to get those that are missing."""
    where = f"Data root: {root}" if root else "No data root: pass --data-root, or set FEDRF_DATA"
    console.print(where + "\n", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("data.name", "what it is", "domains", "found"):
        table.add_column(column, no_wrap=column == "data.name")
    for dataset in datasets:
        table.add_row(*map(escape, (dataset.name, dataset.about, *_describe_domains(dataset))))
    console.print(table)
    missing = [dataset for dataset in datasets if dataset.missing]
    console.print("\nWhere to get missing data sets:" if missing else "")
    for dataset in missing:
        # Not in the table, which would break addresses into several lines.
        console.print(f"{dataset.name}: {dataset.origin}", markup=False, soft_wrap=True)


def _describe_domains(dataset: Availability) -> tuple[str, str]:
    """Return the domains, and which of them are there."""
    if DATASETS.find(dataset.name).user_defined:
        return "yours", "any folder: data.root=FOLDER"
    domains, found = ", ".join(dataset.domains), ", ".join(dataset.found)
    if dataset.missing:
        return domains, f"{found}; missing: {', '.join(dataset.missing)}" if found else "nothing"
    return domains, "all" if any(dataset.found.values()) else "needs no files"


def print_report(report: DataReport, console: Console) -> None:
    """Print the result of a check as tables."""
    nothing = f"{escape(report.name)}: no domains in {escape(str(report.root))}"
    console.print(_domain_table(report) if report.domains else nothing)
    if report.problem:
        console.print(report.problem, markup=False, soft_wrap=True)
    for domain in report.domains:
        for line in _problems(domain):
            console.print(line, markup=False, soft_wrap=True)
    if report.note:
        console.print(f"\n{report.note}", markup=False)
    loaded = [
        ClientShare(domain.name, domain.samples, domain.counts)
        for domain in report.domains
        if domain.samples is not None
    ]
    for table in _count_tables(report.clients or loaded, report.classes, console.width):
        console.print()
        console.print(table)


def _domain_table(report: DataReport) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("domain", no_wrap=True)
    table.add_column("status")
    for column in ("samples", "expected", "classes", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("file or folder", overflow="fold")
    for domain in report.domains:
        table.add_row(*_domain_row(domain, len(report.classes)))
    return table


def _domain_row(domain: DomainCheck, classes: int) -> list[str]:
    samples = "-" if domain.samples is None else f"{domain.samples:,}"
    present = "-" if domain.samples is None else "no labels"
    if domain.counts is not None:
        present = f"{sum(count > 0 for count in domain.counts)} of {classes}"
    return [
        escape(domain.name),
        MARKS[domain.status],
        f"{samples}, {domain.skipped} skipped" if domain.skipped else samples,
        " or ".join(f"{number:,}" for number in domain.expected) or "-",
        present,
        f"{domain.seconds:.2f}",
        escape(domain.where or ("-" if domain.error else "needs no files")),
    ]


def _problems(domain: DomainCheck) -> list[str]:
    """Return a line for each problem of a domain, and the number of those that are not listed."""
    lines = [*([domain.error] if domain.error else []), *domain.corrupt[:MAX_LISTED_FILES]]
    more = len(domain.corrupt) - MAX_LISTED_FILES
    return [*lines, f"{more:,} more in {domain.name}: --json lists all"] if more > 0 else lines


def _count_tables(shares: Sequence[ClientShare], classes: Sequence[str], width: int) -> list[Table]:
    """Return tables of samples by class, with a column for each class if they fit, else a row for each."""
    if not shares:
        return []
    columns = [[share.name, *_cells(share.counts, len(classes)), f"{share.samples:,}"] for share in shares]
    heads = ["", *classes, "total"]
    first, *others = [list(row) for row in zip(heads, *columns, strict=True)]
    across = _tables_of_columns(first, others, width)
    is_readable = len(classes) <= MAX_CLASS_COLUMNS and len(across) == 1
    return across if is_readable else _tables_of_columns(heads, columns, width)


def _cells(counts: tuple[int, ...] | None, num_classes: int) -> list[str]:
    # Dots for zeros make the other numbers easier to see.
    return ["?"] * num_classes if counts is None else [f"{count:,}" if count else "·" for count in counts]


def _tables_of_columns(first: list[str], columns: list[list[str]], width: int) -> list[Table]:
    """Return tables that start with the first column and have as many of the others as fit in the width."""
    blocks: list[list[list[str]]] = []
    room = 0
    for column in columns:
        needed = 2 + max(map(len, column))
        if needed > room:
            blocks.append([first])
            room = width - max(map(len, first))
        blocks[-1].append(column)
        room -= needed
    return [_table(block) for block in blocks]


def _table(columns: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(Text(column[0]), justify="right" if index else "left", no_wrap=True)
    for cells in zip(*(column[1:] for column in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table
