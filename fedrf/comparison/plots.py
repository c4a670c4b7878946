"""Plots of accuracy over the values of a key: the mean over tasks with its deviation over seeds, and each task."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrf.comparison.results import Comparison
from fedrf.comparison.tasks import Task
from fedrf.comparison.variants import Variant, format_value
from fedrf.experiment.drawing import as_svg, literal
from fedrf.files import write_atomically

LOG_SCALE_RATIO = 100.0  # ratio of the largest to the smallest value from which the axis is logarithmic


def write_plots(comparison: Comparison) -> list[str]:
    """Write an SVG file for each key that is varied; return their names."""
    names = []
    for key in comparison.plan.varied_keys:
        names.append(f"{key}.svg")
        write_atomically(
            comparison.folder / names[-1], partial(Path.write_text, data=draw(comparison, key), encoding="utf-8")
        )
    return names


def draw(comparison: Comparison, key: str) -> str:
    """Return the plot of one key as SVG, with one colour for each method."""
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axis = figure.subplots()
    series: dict[str, list[Variant]] = {}
    for variant in comparison.plan.variants:
        if variant.varied and variant.varied[0] == key:
            series.setdefault(variant.method, []).append(variant)
    values = [variant.varied[1] for variant in next(iter(series.values())) if variant.varied]
    positions = _set_positions(axis, values)
    for number, (method, variants) in enumerate(series.items()):
        for task in comparison.plan.tasks if len(comparison.plan.tasks) > 1 else ():
            _draw_task(axis, comparison, variants, positions, task, f"C{number}")
        _draw_mean(axis, comparison, variants, positions, method, f"C{number}")
    axis.set_xlabel(key, fontsize=9)
    axis.set_ylabel("accuracy on the target in %", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    if len(series) > 1 and axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=8, frameon=False)
    return as_svg(figure)


def _draw_mean(
    axis: Axes, comparison: Comparison, variants: list[Variant], positions: dict[str, float], method: str, colour: str
) -> None:
    """Draw the mean over tasks with error bars over seeds."""
    means = [(positions[format_value(v.varied[1])], comparison.mean(v)) for v in variants if v.varied]
    points = sorted((x, 100 * mean.value, mean.spread) for x, mean in means if mean.value is not None)
    if points:
        xs, heights, spreads = zip(*points, strict=True)
        bars = [100 * (spread or 0.0) for spread in spreads]
        axis.errorbar(xs, heights, bars, fmt="o-", color=colour, capsize=3, markersize=4, label=literal(method))


def _draw_task(
    axis: Axes, comparison: Comparison, variants: list[Variant], positions: dict[str, float], task: Task, colour: str
) -> None:
    """Draw one task as a thin line with its name at the right end."""
    means = [(positions[format_value(v.varied[1])], comparison.mean(v, [task]).value) for v in variants if v.varied]
    points = sorted((x, 100 * value) for x, value in means if value is not None)
    if points:
        axis.plot(*zip(*points, strict=True), color=colour, linewidth=0.7, alpha=0.5)
        name = literal(task.label)
        axis.annotate(name, points[-1], (4, 0), textcoords="offset points", fontsize=6, va="center", color=colour)


def _set_positions(axis: Axes, values: list[Any]) -> dict[str, float]:
    """Return the position of each value on the axis, and set the ticks; words are placed at 0, 1, 2, …."""
    names = [format_value(value) for value in values]
    if not all(type(value) in (int, float) for value in values):
        positions = {name: float(number) for number, name in enumerate(names)}
    else:
        positions = {name: float(value) for name, value in zip(names, values, strict=True)}
        positive = [x for x in positions.values() if x > 0]
        if positive and min(positions.values()) >= 0 and max(positive) / min(positive) >= LOG_SCALE_RATIO:
            if len(positive) == len(positions):
                axis.set_xscale("log")
            else:
                axis.set_xscale("symlog", linthresh=min(positive))
    axis.set_xticks(list(positions.values()), [literal(name) for name in positions])
    axis.minorticks_off()
    return positions
