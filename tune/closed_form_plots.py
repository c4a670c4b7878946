"""Plots of a closed-form sweep: accuracy and score over γ × σ, and over γ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tune.closed_form import GridPoint, by_num_features, oracle, selected


def draw_grid(points: Sequence[GridPoint]) -> Figure:
    """Plot accuracy and score over γ and σ for each N, with a colour scale for each."""
    groups, measures = by_num_features(points), _measures(points)
    figure = Figure(figsize=(3.8 * len(groups), 0.4 + 3.3 * len(measures)), layout="constrained")
    axes = figure.subplots(len(measures), len(groups), squeeze=False)
    for row, (name, title) in zip(axes, measures.items(), strict=True):
        for axis, (size, group) in zip(row, groups.items(), strict=True):
            _draw_cells(axis, group, name)
            axis.set_title(f"N = {size}: {title}", fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return figure


def _measures(points: Sequence[GridPoint]) -> dict[str, str]:
    """Return the titles of what is plotted: accuracy only if the target has labels."""
    accuracy = {"accuracy": "accuracy on the target"} if points[0].accuracy is not None else {}
    return accuracy | {"score": "score, without labels"}


def _draw_cells(axis: Axes, points: Sequence[GridPoint], name: str) -> None:
    gammas = list(dict.fromkeys(point.grid_gamma for point in points))
    sigmas = list(dict.fromkeys(point.grid_sigma for point in points))
    cells = np.array([getattr(point, name) for point in points]).reshape(len(sigmas), len(gammas))
    bar = axis.figure.colorbar(axis.imshow(cells, origin="lower", aspect="auto"), ax=axis)
    bar.ax.tick_params(labelsize=8)

    def mark(marked: Sequence[GridPoint], label: str, **style: Any) -> None:
        positions = [(gammas.index(point.grid_gamma), sigmas.index(point.grid_sigma)) for point in marked]
        axis.plot(*np.reshape(positions, (-1, 2)).T, linestyle="", label=label, **style)

    mark([point for point in points if point.informative], "γ in the informative range", marker=".", color="0.7")
    mark([selected(points)], "selected by score", marker="o", markersize=12, color="red", fillstyle="none")
    if most_accurate := oracle(points):
        mark([most_accurate], "oracle: chosen with target labels", marker="*", markersize=9, color="white", mec="black")
    axis.set_xticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas], fontsize=8)
    axis.set_yticks(range(len(sigmas)), [f"{sigma:g}" for sigma in sigmas], fontsize=8)
    axis.set_xlabel("γ in |ℓ|²", fontsize=9)
    axis.set_ylabel("σ in tenths of the width", fontsize=9)


def draw_curve(points: Sequence[GridPoint]) -> Figure:
    """Plot accuracy and score over γ for each N, with the informative range in grey, as in the paper's appendix B."""
    groups, measures = by_num_features(points), _measures(points)
    figure = Figure(figsize=(3.5 * len(groups), 0.4 + 2.3 * len(measures)), layout="constrained")
    axes = figure.subplots(len(measures), len(groups), squeeze=False, sharex=True)
    for row, (name, title) in zip(axes, measures.items(), strict=True):
        for axis, (size, group) in zip(row, groups.items(), strict=True):
            unit = group[0].gamma / group[0].grid_gamma
            axis.axvspan(group[0].zone_low / unit, group[0].zone_high / unit, color="0.88", label="informative range")
            axis.plot([point.grid_gamma for point in group], [getattr(point, name) for point in group])
            axis.set_xscale("log")
            axis.grid(linestyle=":", linewidth=0.5)
            axis.tick_params(labelsize=8)
            axis.set_title(f"N = {size}, σ = {group[0].sigma:.3g}: {title}", fontsize=9)
            if name == "accuracy":  # at least four points high, so that single samples do not look like large steps
                low, high = axis.get_ylim()
                axis.set_ylim(min(low, high - 0.04), max(high, low + 0.04))
    for axis in axes[-1]:
        axis.set_xlabel("γ in |ℓ|²", fontsize=9)
    axes[0, 0].legend(fontsize=8)
    return figure
