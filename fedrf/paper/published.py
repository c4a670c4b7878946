"""The numbers of the paper, from `published.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper; an entry is a number, a pair of mean and deviation, a text, or None."""

    unit: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Published:
    """What the paper prints for one experiment.

    Attributes
    ----------
    place
        Where it is in the paper.
    setting
        What the paper says about the setting.
    notes
        Remarks on misprints.
    extra
        Other values, such as intervals that a figure marks.
    """

    place: str
    setting: str
    notes: tuple[str, ...]
    tables: dict[str, PublishedTable]
    extra: dict[str, Any]


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return content


@cache
def published(name: str) -> Published:
    """Return what the paper prints for one experiment."""
    entry = dict(_content()[name])
    place, setting, notes = entry.pop("place"), entry.pop("setting", ""), tuple(entry.pop("notes", ()))
    tables = {key: _table(table) for key, table in entry.pop("tables").items()}
    return Published(place, setting, notes, tables, entry)


def _table(entry: dict[str, Any]) -> PublishedTable:
    columns = tuple(str(column) for column in entry["columns"])
    rows = {str(row): dict(zip(columns, values, strict=True)) for row, values in entry["rows"].items()}
    return PublishedTable(entry["unit"], columns, rows)
