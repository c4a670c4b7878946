"""What a sweep came to: a line a trial, the best of them by score, and files to go on with."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedrf.config.schema import Config
from fedrf.experiment.display import percent
from fedrf.files import write_atomically
from tune.space import Point

SYMBOLS = {
    "align.gamma": "γ",
    "model.sigma": "σ",
    "model.num_features": "N",
    "federation.classifier_interval": "T_C",
    "model.dim": "m",
    "align.weight": "λ",
}
ORDER = ("finished", "stopped early", "unfinished", "failed")


@dataclass(frozen=True)
class Outcome:
    """One trial. `score` needs no labels and chooses, the most being best; `accuracy`, if known, is for the record."""

    number: int
    status: str
    point: Point
    progress: int
    length: int
    score: float | None
    accuracy: float | None
    bytes: int | None
    seconds: float | None
    folder: str
    error: str | None = None


def best(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Return the trial with the best score of those that finished: scores from the middle of a run do not compare."""
    finished = [one for one in outcomes if one.status == "finished" and one.score is not None]
    return max(finished, key=_worth, default=None)


def oracle(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Return the most accurate trial, which nobody without target labels could have chosen."""
    finished = [one for one in outcomes if one.status == "finished" and one.accuracy is not None]
    return max(finished, key=lambda one: one.accuracy or 0.0, default=None)


def ranked(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the trials, best first: finished ones by score, then the others by how far they came."""
    return sorted(outcomes, key=lambda one: (ORDER.index(one.status), -_worth(one), -one.progress))


def _worth(outcome: Outcome) -> float:
    return -inf if outcome.score is None else outcome.score


def describe(point: Point) -> str:
    """Write a point for people."""
    return ", ".join(f"{symbol(key)} {shown(value)}" for key, value in point.items())


def symbol(key: str) -> str:
    """Return the paper's symbol of a key, or the key."""
    return SYMBOLS.get(key, key)


def shown(value: Any) -> str:
    """Write a value for people."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def summarise(plan: dict[str, Any], outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """Put summary.json together."""
    chosen, ceiling = best(outcomes), oracle(outcomes)
    first = next((one for one in outcomes if one.number == 1), None)
    return {
        **plan,
        "counts": {status: sum(one.status == status for one in outcomes) for status in ORDER},
        "best": asdict(chosen) if chosen else None,
        "default": asdict(first) if first else None,
        "oracle": asdict(ceiling) if ceiling else None,
        "trials": [asdict(one) for one in ranked(outcomes)],
        "seconds": seconds,
    }


def write(folder: Path, summary: dict[str, Any], outcomes: Sequence[Outcome], chosen: Config | None) -> None:
    """Write trials.csv, summary.json and, if a trial finished, best.yaml."""
    keys = list(outcomes[0].point) if outcomes else []
    columns = [
        "number",
        "status",
        "score",
        "accuracy",
        *keys,
        "progress",
        "length",
        "bytes",
        "seconds",
        "folder",
        "error",
    ]

    def table(path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(asdict(one) | one.point for one in ranked(outcomes))

    text = json.dumps(summary, indent=1) + "\n"
    write_atomically(folder / "trials.csv", table)
    write_atomically(folder / "summary.json", lambda path: path.write_text(text))
    if chosen is not None:
        write_atomically(folder / "best.yaml", chosen.save)


def print_table(folder: Path, outcomes: Sequence[Outcome], console: Console) -> None:
    """Print all trials, the best first, and what to do next."""
    chosen, ceiling = best(outcomes), oracle(outcomes)
    keys = list(outcomes[0].point) if outcomes else []
    table = Table(box=None, pad_edge=False)
    for column in ("trial", "", "score", "accuracy", *(symbol(key) for key in keys), "came to", "seconds"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for one in ranked(outcomes):
        remarks = ["best"] if one is chosen else [one.status] if one.status in ("unfinished", "failed") else []
        remarks += ["recipe"] if one.number == 1 else []
        table.add_row(
            str(one.number),
            ", ".join(remarks),
            "–" if one.score is None else f"{one.score:.4f}",
            percent(one.accuracy),
            *(shown(one.point[key]) for key in keys),
            f"{one.progress}/{one.length}",
            "–" if one.seconds is None else f"{one.seconds:.0f}",
        )
    console.print(table)
    for one in outcomes:
        if one.error:
            console.print(f"Trial {one.number} failed: {escape(one.error)}", soft_wrap=True)
    if chosen is not None:
        console.print(f"Chosen by score, without labels: trial {chosen.number}, accuracy {percent(chosen.accuracy)}.")
        if ceiling is not None:
            console.print(f"Oracle, chosen with target labels: trial {ceiling.number}, {percent(ceiling.accuracy)}.")
        console.print(f"Run it again: fedrf run {escape(str(folder / 'best.yaml'))}", soft_wrap=True)
    console.print(f"Report: {escape(str(folder / 'report.html'))}", soft_wrap=True)
