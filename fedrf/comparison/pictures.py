"""Accuracy over the values of a key: the mean over tasks with its deviation over seeds, and a thin line a task."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrf.comparison.outcome import Comparison
from fedrf.comparison.plan import Task, Variant, shown
from fedrf.experiment.report import as_svg
from fedrf.files import write_atomically

DECADES = 100.0  # ratio of values from which on a logarithmic axis shows more


def write_pictures(comparison: Comparison) -> list[str]:
    """Write an SVG file for each key that is varied; return their names."""
    names = []
    for key in comparison.plan.knobs:
        names.append(f"{key}.svg")
        write_atomically(comparison.folder / names[-1], partial(Path.write_text, data=draw(comparison, key)))
    return names


def draw(comparison: Comparison, key: str) -> str:
    """Draw one key, a colour for each method."""
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axis = figure.subplots()
    series: dict[str, list[Variant]] = {}
    for variant in comparison.plan.variants:
        if variant.knob and variant.knob[0] == key:
            series.setdefault(variant.method, []).append(variant)
    values = [variant.knob[1] for variant in next(iter(series.values())) if variant.knob]
    places = _places(axis, values)
    for number, (method, members) in enumerate(series.items()):
        for task in comparison.plan.tasks if len(comparison.plan.tasks) > 1 else ():
            _line(axis, comparison, members, places, task, f"C{number}")
        means = [(places[shown(one.knob[1])], comparison.mean(one)) for one in members if one.knob]
        known = sorted((place, 100 * mean.value, mean.spread) for place, mean in means if mean.value is not None)
        if not known:
            continue
        where, heights, spreads = zip(*known, strict=True)
        bars = [100 * (spread or 0.0) for spread in spreads]
        axis.errorbar(where, heights, bars, fmt="o-", color=f"C{number}", capsize=3, markersize=4, label=method)
    axis.set_xlabel(key, fontsize=9)
    axis.set_ylabel("accuracy on the target in %", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    if len(series) > 1 and axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=8, frameon=False)
    return as_svg(figure)


def _line(
    axis: Axes, comparison: Comparison, members: list[Variant], places: dict[str, float], task: Task, colour: str
) -> None:
    """Draw one task as a thin line with its name at the right end."""
    means = [(places[shown(one.knob[1])], comparison.mean(one, [task]).value) for one in members if one.knob]
    points = sorted((place, 100 * value) for place, value in means if value is not None)
    if points:
        axis.plot(*zip(*points, strict=True), color=colour, linewidth=0.7, alpha=0.5)
        axis.annotate(task.label, points[-1], (4, 0), textcoords="offset points", fontsize=6, va="center", color=colour)


def _places(axis: Axes, values: list[Any]) -> dict[str, float]:
    """Return where on the axis each value is, and mark it there; words, and numbers among them, one after the other."""
    names = [shown(value) for value in values]
    if not all(type(value) in (int, float) for value in values):
        places = {name: float(number) for number, name in enumerate(names)}
    else:
        places = {name: float(value) for name, value in zip(names, values, strict=True)}
        above = [place for place in places.values() if place > 0]
        if above and min(places.values()) >= 0 and max(above) / min(above) >= DECADES:
            axis.set_xscale("log") if len(above) == len(places) else axis.set_xscale("symlog", linthresh=min(above))
    axis.set_xticks(list(places.values()), list(places))
    axis.minorticks_off()
    return places
