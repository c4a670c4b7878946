"""Results of a sweep: one for each trial, the best of them by score, and the files that hold them."""

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
STATUSES = ("finished", "stopped early", "unfinished", "failed")


@dataclass(frozen=True)
class TrialResult:
    """Result of one trial.

    Attributes
    ----------
    progress, length
        Rounds and steps that the trial has done, and those of a finished trial.
    score
        Computed without target labels and used for selection; higher is better.
    accuracy
        On the target, if it has labels; only recorded.
    """

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


def best(results: Sequence[TrialResult]) -> TrialResult | None:
    """Return the finished trial with the best score; scores of unfinished trials are not comparable."""
    finished = [result for result in results if result.status == "finished" and result.score is not None]
    return max(finished, key=_score, default=None)


def oracle(results: Sequence[TrialResult]) -> TrialResult | None:
    """Return the most accurate finished trial, which cannot be chosen without target labels."""
    finished = [result for result in results if result.status == "finished" and result.accuracy is not None]
    return max(finished, key=lambda result: result.accuracy or 0.0, default=None)


def ranked(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the trials by status, then by score, then by progress, the best first."""
    return sorted(results, key=lambda result: (STATUSES.index(result.status), -_score(result), -result.progress))


def _score(result: TrialResult) -> float:
    return -inf if result.score is None else result.score


def format_point(point: Point) -> str:
    """Return a point as text, with the paper's symbols."""
    return ", ".join(f"{symbol(key)} {format_value(value)}" for key, value in point.items())


def symbol(key: str) -> str:
    """Return the paper's symbol of a key, or the key."""
    return SYMBOLS.get(key, key)


def format_value(value: Any) -> str:
    """Return a value as text with three significant digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def summarise(plan: dict[str, Any], results: Sequence[TrialResult], seconds: float) -> dict[str, Any]:
    """Return the contents of summary.json."""
    chosen, most_accurate = best(results), oracle(results)
    first = next((result for result in results if result.number == 1), None)
    return {
        **plan,
        "counts": {status: sum(result.status == status for result in results) for status in STATUSES},
        "best": asdict(chosen) if chosen else None,
        "default": asdict(first) if first else None,
        "oracle": asdict(most_accurate) if most_accurate else None,
        "trials": [asdict(result) for result in ranked(results)],
        "seconds": seconds,
    }


def write_results(folder: Path, summary: dict[str, Any], results: Sequence[TrialResult], best: Config | None) -> None:
    """Write trials.csv, summary.json and, if a trial finished, best.yaml."""
    keys = list(results[0].point) if results else []
    measures = ["number", "status", "score", "accuracy"]
    costs = ["progress", "length", "bytes", "seconds", "folder", "error"]

    def write_csv(path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*measures, *keys, *costs], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(asdict(result) | result.point for result in ranked(results))

    text = json.dumps(summary, indent=1) + "\n"
    write_atomically(folder / "trials.csv", write_csv)
    write_atomically(folder / "summary.json", lambda path: path.write_text(text))
    if best is not None:
        write_atomically(folder / "best.yaml", best.save)


def print_results(folder: Path, results: Sequence[TrialResult], console: Console) -> None:
    """Print all trials, the best first, and how to run the best one again."""
    chosen, most_accurate = best(results), oracle(results)
    console.print(_results_table(results, chosen))
    for result in results:
        if result.error:
            console.print(f"Trial {result.number} failed: {escape(result.error)}", soft_wrap=True)
    if chosen is not None:
        console.print(f"Chosen by score, without labels: trial {chosen.number}, accuracy {percent(chosen.accuracy)}.")
        if most_accurate is not None:
            accuracy = percent(most_accurate.accuracy)
            console.print(f"Oracle, chosen with target labels: trial {most_accurate.number}, {accuracy}.")
        console.print(f"Run it again: fedrf run {escape(str(folder / 'best.yaml'))}", soft_wrap=True)
    console.print(f"Report: {escape(str(folder / 'report.html'))}", soft_wrap=True)


def _results_table(results: Sequence[TrialResult], chosen: TrialResult | None) -> Table:
    keys = list(results[0].point) if results else []
    table = Table(box=None, pad_edge=False)
    for column in ("trial", "", "score", "accuracy", *(symbol(key) for key in keys), "progress", "seconds"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for result in ranked(results):
        remarks = ["best"] if result is chosen else [result.status] if result.status in STATUSES[2:] else []
        remarks += ["recipe"] if result.number == 1 else []
        table.add_row(
            str(result.number),
            ", ".join(remarks),
            "–" if result.score is None else f"{result.score:.4f}",
            percent(result.accuracy),
            *(format_value(result.point[key]) for key in keys),
            f"{result.progress}/{result.length}",
            "–" if result.seconds is None else f"{result.seconds:.0f}",
        )
    return table
