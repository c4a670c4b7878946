"""What a closed-form sweep came to: a table, pictures over γ and σ, and files; the whole of `--closed-form`."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table

from fedrf.config.schema import Config
from fedrf.data.registry import clients_of
from fedrf.experiment.display import percent
from fedrf.files import write_atomically
from tune.closed_form import ClosedFormGrid, Pooled, SweepPoint, by_num_features, load_pooled, oracle, selected, sweep

CURVE_POINTS = 25  # four to a decade of the paper's γ
KINDS = ("shared", "path", "scoring")  # of seconds
HELD = ("points.csv", "summary.json", "sweep.yaml")


def summarise(config: Config, pooled: Pooled, points: Sequence[SweepPoint], seconds: float) -> dict[str, Any]:
    """Put summary.json together; `seconds` is all time, from the first sample to the last picture."""

    def choice(some: Sequence[SweepPoint]) -> dict[str, Any]:
        best, ceiling = selected(some), oracle(some)
        spent = {kind: sum(getattr(point, f"{kind}_seconds") for point in some) for kind in KINDS}
        return {"selected": asdict(best), "oracle": asdict(ceiling) if ceiling else None, "seconds": spent}

    sources, target = clients_of(config.data)
    whole = choice(points)
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
        "num_features": {str(size): choice(some) for size, some in by_num_features(points).items()},
        "config_hash": config.digest,
    }


def run_closed_form(config: Config, out: Path, console: Console, grid: ClosedFormGrid | None = None) -> dict[str, Any]:
    """Sweep a settled configuration's data, fill the folder `out`, print a table, and return the summary.

    The folder gets points.csv, summary.json, config.yaml, grid.svg with score and accuracy over γ × σ, and gamma.svg
    with both over γ at each N's selected σ, on a finer path whose points are in curve.csv.
    """
    began, grid = time.perf_counter(), grid or ClosedFormGrid()
    if any((out / name).exists() for name in HELD):
        raise ValueError(f"--out: {out} already holds a sweep; name another")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"--out: {out} is a file") from None
    config.save(out / "config.yaml")
    terminal = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        loading = bar.add_task("samples", total=None)
        pooled = load_pooled(config, lambda done, total: bar.update(loading, completed=done, total=total))
        bar.update(loading, visible=False)
        task = bar.add_task("points", total=grid.size + CURVE_POINTS * len(grid.num_features))
        points = sweep(pooled, grid, lambda: bar.advance(task))
        fine = tuple(float(one) for one in np.geomspace(min(grid.gammas), max(grid.gammas), CURVE_POINTS))
        curve: list[SweepPoint] = []
        for size, some in by_num_features(points).items():
            at_best = ClosedFormGrid(fine, (selected(some).grid_sigma,), (size,))
            curve += sweep(pooled, at_best, lambda: bar.advance(task))
    write_points(out / "curve.csv", curve)
    draw_grid(points).savefig(out / "grid.svg", metadata={"Date": None})
    draw_curve(curve).savefig(out / "gamma.svg", metadata={"Date": None})
    summary = summarise(config, pooled, points, time.perf_counter() - began)
    text = json.dumps(summary, indent=1) + "\n"
    write_atomically(out / "summary.json", lambda path: path.write_text(text))
    write_points(out / "points.csv", points)
    print_summary(summary, out, console)
    return summary


def write_points(path: Path, points: Sequence[SweepPoint]) -> None:
    """Write a line for each point."""

    def fill(temporary: Path) -> None:
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(SweepPoint)])
            writer.writeheader()
            writer.writerows(asdict(point) for point in points)

    write_atomically(path, fill)


def print_summary(summary: dict[str, Any], out: Path, console: Console) -> None:
    """Print what was chosen for each N, with what it cost."""
    console.print(
        f"RF-TCA in closed form: {', '.join(summary['sources'])} → {summary['target']}, {summary['points']} points",
        markup=False,
    )
    table = Table(box=None, pad_edge=False)
    for column in ("N", "σ", "γ", "score", "accuracy", "oracle (σ, γ)", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for size, one in summary["num_features"].items():
        best, ceiling = one["selected"], one["oracle"]
        table.add_row(
            size,
            f"{best['sigma']:.3g}",
            f"{best['gamma']:.2g}",
            f"{best['score']:.3f}",
            percent(best["accuracy"]),
            f"{percent(ceiling['accuracy'])} ({ceiling['sigma']:.3g}, {ceiling['gamma']:.2g})" if ceiling else "–",
            " + ".join(f"{one['seconds'][kind]:.1f}" for kind in KINDS),
        )
    console.print(table)
    best, ceiling, units = summary["selected"], summary["oracle"], summary["units"]
    console.print(f"Chosen by score, without labels, at the largest N: accuracy {percent(best['accuracy'])}.")
    if ceiling:
        console.print(
            f"Oracle, chosen with target labels: N {ceiling['num_features']}, {percent(ceiling['accuracy'])}."
        )
    console.print(
        f"The paper's numbers, as in the pictures: γ in |ℓ|² = {units['gamma']:.3g}, σ in {units['sigma']:.3g}."
    )
    console.print(f"Seconds: features and basis + γ path + scoring; {summary['seconds']['total']:.0f} in all.")
    console.print(f"Written to {escape(str(out))}", soft_wrap=True)


def _figures(points: Sequence[SweepPoint]) -> dict[str, str]:
    known = {"accuracy": "accuracy on the target"} if points[0].accuracy is not None else {}
    return known | {"score": "score, without labels"}


def draw_grid(points: Sequence[SweepPoint]) -> Figure:
    """Draw accuracy and score over γ and σ for each N, each with colours of its own."""
    groups, shown = by_num_features(points), _figures(points)
    figure = Figure(figsize=(3.8 * len(groups), 0.4 + 3.3 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), len(groups), squeeze=False)
    for row, (name, title) in zip(axes, shown.items(), strict=True):
        for axis, (size, some) in zip(row, groups.items(), strict=True):
            _draw_cells(axis, some, name)
            axis.set_title(f"N = {size}: {title}", fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return figure


def _draw_cells(axis: Axes, points: Sequence[SweepPoint], name: str) -> None:
    gammas = list(dict.fromkeys(point.grid_gamma for point in points))
    sigmas = list(dict.fromkeys(point.grid_sigma for point in points))
    cells = np.array([getattr(point, name) for point in points]).reshape(len(sigmas), len(gammas))
    bar = axis.figure.colorbar(axis.imshow(cells, origin="lower", aspect="auto"), ax=axis)
    bar.ax.tick_params(labelsize=8)

    def mark(some: Sequence[SweepPoint], label: str, **style: Any) -> None:
        places = [(gammas.index(point.grid_gamma), sigmas.index(point.grid_sigma)) for point in some]
        axis.plot(*np.reshape(places, (-1, 2)).T, linestyle="", label=label, **style)

    mark([point for point in points if point.informative], "γ in the informative range", marker=".", color="0.7")
    mark([selected(points)], "selected by score", marker="o", markersize=12, color="red", fillstyle="none")
    if ceiling := oracle(points):
        mark([ceiling], "oracle: chosen with target labels", marker="*", markersize=9, color="white", mec="black")
    axis.set_xticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas], fontsize=8)
    axis.set_yticks(range(len(sigmas)), [f"{sigma:g}" for sigma in sigmas], fontsize=8)
    axis.set_xlabel("γ in |ℓ|²", fontsize=9)
    axis.set_ylabel("σ in tenths of the width", fontsize=9)


def draw_curve(points: Sequence[SweepPoint]) -> Figure:
    """Draw accuracy and score over γ with the informative range in grey, as in the paper's appendix B, for each N."""
    groups, shown = by_num_features(points), _figures(points)
    figure = Figure(figsize=(3.5 * len(groups), 0.4 + 2.3 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), len(groups), squeeze=False, sharex=True)
    for row, (name, title) in zip(axes, shown.items(), strict=True):
        for axis, (size, some) in zip(row, groups.items(), strict=True):
            unit = some[0].gamma / some[0].grid_gamma
            axis.axvspan(some[0].zone_low / unit, some[0].zone_high / unit, color="0.88", label="informative range")
            axis.plot([point.grid_gamma for point in some], [getattr(point, name) for point in some])
            axis.set_xscale("log")
            axis.grid(linestyle=":", linewidth=0.5)
            axis.tick_params(labelsize=8)
            axis.set_title(f"N = {size}, σ = {some[0].sigma:.3g}: {title}", fontsize=9)
            if name == "accuracy":  # lest a single sample look like a cliff
                low, high = axis.get_ylim()
                axis.set_ylim(min(low, high - 0.04), max(high, low + 0.04))
    for axis in axes[-1]:
        axis.set_xlabel("γ in |ℓ|²", fontsize=9)
    axes[0, 0].legend(fontsize=8)
    return figure
