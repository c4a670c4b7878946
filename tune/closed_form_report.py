"""`--closed-form`: run the sweep, write its files and plots, and print a table."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table

from fedrf.config.schema import Config
from fedrf.data.domains import clients_of
from fedrf.experiment.display import percent
from fedrf.files import write_atomically
from tune.closed_form import ClosedFormGrid, GridPoint, by_num_features, oracle, selected, sweep_grid
from tune.closed_form_plots import draw_curve, draw_grid
from tune.pooled import PooledData, load_pooled

CURVE_POINTS = 25  # four for each decade of the paper's γ
TIMES = ("shared", "path", "scoring")
SWEEP_FILES = ("points.csv", "summary.json", "sweep.yaml")


def run_closed_form(config: Config, out: Path, console: Console, grid: ClosedFormGrid | None = None) -> dict[str, Any]:
    """Sweep the data of a resolved configuration, write the files to `out`, print a table, and return the summary.

    The folder gets points.csv, summary.json, config.yaml, grid.svg with score and accuracy over γ × σ, and gamma.svg
    with both over γ at each N's selected σ, on a finer grid whose points are in curve.csv.
    """
    started, grid = time.perf_counter(), grid or ClosedFormGrid()
    _prepare_folder(out)
    config.save(out / "config.yaml")
    pooled, points, curve = _sweep(config, grid)
    write_points(out / "curve.csv", curve)
    draw_grid(points).savefig(out / "grid.svg", metadata={"Date": None})
    draw_curve(curve).savefig(out / "gamma.svg", metadata={"Date": None})
    summary = summarise(config, pooled, points, time.perf_counter() - started)
    text = json.dumps(summary, indent=1) + "\n"
    write_atomically(out / "summary.json", lambda path: path.write_text(text))
    write_points(out / "points.csv", points)
    print_summary(summary, out, console)
    return summary


def _prepare_folder(out: Path) -> None:
    if any((out / name).exists() for name in SWEEP_FILES):
        raise ValueError(f"--out: {out} already holds a sweep; choose another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"--out: {out} is a file") from None


def _sweep(config: Config, grid: ClosedFormGrid) -> tuple[PooledData, list[GridPoint], list[GridPoint]]:
    """Return the data, all points of the grid, and the finer points over γ; show a progress bar on a terminal."""
    terminal = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        loading = bar.add_task("samples", total=None)
        pooled = load_pooled(config, lambda done, total: bar.update(loading, completed=done, total=total))
        bar.update(loading, visible=False)
        task = bar.add_task("points", total=grid.size + CURVE_POINTS * len(grid.num_features))
        points = sweep_grid(pooled, grid, lambda: bar.advance(task))
        gammas = tuple(float(gamma) for gamma in np.geomspace(min(grid.gammas), max(grid.gammas), CURVE_POINTS))
        curve: list[GridPoint] = []
        for size, group in by_num_features(points).items():
            at_selected = ClosedFormGrid(gammas, (selected(group).grid_sigma,), (size,))
            curve += sweep_grid(pooled, at_selected, lambda: bar.advance(task))
    return pooled, points, curve


def summarise(config: Config, pooled: PooledData, points: Sequence[GridPoint], seconds: float) -> dict[str, Any]:
    """Return the contents of summary.json; `seconds` is the total time, including loading and plots."""
    sources, target = clients_of(config)
    whole = _summarise_points(points)
    return {
        "dataset": config.data.name,
        "sources": list(sources),
        "target": target,
        "seed": config.seed,
        "samples": {"source": len(pooled.labels), "target": len(pooled.rows) - len(pooled.labels)},
        "kernel": pooled.kernel,
        "units": {"gamma": pooled.gamma_unit, "sigma": pooled.sigma_unit},
        "points": len(points),
        **whole,
        "seconds": whole["seconds"] | {"total": seconds},
        "num_features": {str(size): _summarise_points(group) for size, group in by_num_features(points).items()},
        "config_hash": config.digest,
    }


def _summarise_points(points: Sequence[GridPoint]) -> dict[str, Any]:
    best, most_accurate = selected(points), oracle(points)
    return {
        "selected": asdict(best),
        "oracle": asdict(most_accurate) if most_accurate else None,
        "seconds": {name: sum(getattr(point, f"{name}_seconds") for point in points) for name in TIMES},
    }


def write_points(path: Path, points: Sequence[GridPoint]) -> None:
    """Write a CSV file with a row for each point."""

    def write_csv(temporary: Path) -> None:
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(GridPoint)])
            writer.writeheader()
            writer.writerows(asdict(point) for point in points)

    write_atomically(path, write_csv)


def print_summary(summary: dict[str, Any], out: Path, console: Console) -> None:
    """Print the selected point of each N and its time, and the overall choice."""
    console.print(
        f"RF-TCA in closed form: {', '.join(summary['sources'])} → {summary['target']}, {summary['points']} points",
        markup=False,
    )
    console.print(_selection_table(summary))
    best, most_accurate, units = summary["selected"], summary["oracle"], summary["units"]
    console.print(f"Chosen by score, without labels, at the largest N: accuracy {percent(best['accuracy'])}.")
    if most_accurate:
        accuracy = percent(most_accurate["accuracy"])
        console.print(f"Oracle, chosen with target labels: N {most_accurate['num_features']}, {accuracy}.")
    console.print(f"The paper's numbers, as in the plots: γ in |ℓ|² = {units['gamma']:.3g}, σ in {units['sigma']:.3g}.")
    console.print(f"Seconds: features and basis + γ path + scoring; {summary['seconds']['total']:.0f} in all.")
    console.print(f"Written to {escape(str(out))}", soft_wrap=True)


def _selection_table(summary: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("N", "σ", "γ", "score", "accuracy", "oracle (σ, γ)", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for size, group in summary["num_features"].items():
        best, most_accurate = group["selected"], group["oracle"]
        table.add_row(
            size,
            f"{best['sigma']:.3g}",
            f"{best['gamma']:.2g}",
            f"{best['score']:.3f}",
            percent(best["accuracy"]),
            _format_oracle(most_accurate) if most_accurate else "–",
            " + ".join(f"{group['seconds'][name]:.1f}" for name in TIMES),
        )
    return table


def _format_oracle(point: dict[str, Any]) -> str:
    return f"{percent(point['accuracy'])} ({point['sigma']:.3g}, {point['gamma']:.2g})"
