"""What benchmarks measure: rows that are printed at once, and that `make bench` collects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

LOWER_IS_BETTER = ("s", "ms", "µs", "GB", "MB", "kB", "B")
HEADINGS = ("value", "", "bar", "", "remark")


@dataclass(frozen=True)
class Row:
    """One measured value.

    Attributes
    ----------
    name
        What was measured; the same in every run.
    value, unit
        The value.
    bar
        What is required, such as ``<= 1.5``; empty if nothing is.
    note
        A remark.
    """

    name: str
    value: float
    unit: str = ""
    bar: str = ""
    note: str = ""

    @property
    def better(self) -> str:
        """Which values are better: `lower`, `higher`, or empty if neither bar nor unit says it."""
        if self.bar:
            return "lower" if self.bar.startswith("<=") else "higher"
        return "lower" if self.unit in LOWER_IS_BETTER else ""

    @property
    def is_ok(self) -> bool | None:
        """Whether the value meets the bar; None if there is none."""
        if not self.bar:
            return None
        limit = float(self.bar.split()[1])
        return self.value <= limit if self.better == "lower" else self.value >= limit

    @property
    def verdict(self) -> str:
        """The answer of `is_ok` in words."""
        return {None: "", True: "met", False: "NOT MET"}[self.is_ok]

    def as_json(self) -> dict[str, Any]:
        """Return the row as a line of results.json."""
        return {**asdict(self), "better": self.better, "is_ok": self.is_ok}


REPORTED: list[Row] = []


def report(name: str, value: float, unit: str = "", note: str = "", bar: str = "") -> None:
    """Print a value with its bar, and keep it for `make bench`."""
    row = Row(name, float(value), unit, bar, note)
    REPORTED.append(row)
    print(f"{name:<78}{row.value:>10.3g} {unit:<5}{bar:<9}{row.verdict:<8}{note}".rstrip(), flush=True)


def collect(name: str) -> list[Row]:
    """Run one benchmark and return what it reported."""
    REPORTED.clear()
    main: Callable[[], None] = import_module(f"benchmarks.{name}").main
    main()
    return list(REPORTED)


def as_table(rows: list[dict[str, Any]]) -> str:
    """Return rows of results.json as a table in Markdown."""
    lines = [f"| | {' | '.join(HEADINGS)} |", "| --- | ---: | --- | --- | --- | --- |"]
    for content in rows:
        row = Row(**{key: content[key] for key in ("name", "value", "unit", "bar", "note")})
        cells = (row.name, f"{row.value:.3g}", row.unit, row.bar, row.verdict, row.note)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def slower(before: list[dict[str, Any]], now: list[dict[str, Any]], factor: float) -> list[str]:
    """Return a line for each row that is worse than before by more than `factor`."""
    old, lines = {row["name"]: row["value"] for row in before}, []
    for row in now:
        value, earlier = row["value"], old.get(row["name"])
        if earlier is None or min(value, earlier) <= 0 or not row["better"]:
            continue
        ratio = value / earlier if row["better"] == "lower" else earlier / value
        if ratio > factor:
            lines.append(f"{row['name']}: {value:.3g} {row['unit']}, before {earlier:.3g}: {ratio:.2f} x worse")
    return lines
