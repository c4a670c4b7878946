"""The figures, in one style: legible in print, colours and markers that the colour-blind can tell apart."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrf.experiment.drawing import as_svg
from fedrf.files import write_atomically
from fedrf.paper.outcome import HERE, PAPER, Outcome, Table

# Of Okabe and Ito, the darkest first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
}
DPI = 200
RANDOM_FEATURES = "RF-TCA"
# One colour and marker for each method of figure 3, in both panels.
ALIGNMENTS = ("RF-TCA", "TCA", "JDA", "CORAL", "GFK", "DaNN", "R-TCA")
TARGETS = ("mt", "up", "mm")  # of figures 4 and 7


def write_figure(outcome: Outcome, draw: Callable[[Outcome], Figure], folder: Path) -> None:
    """Write the figure of an experiment as SVG and PNG."""
    with rc_context(STYLE):
        figure = draw(outcome)
        svg, png = as_svg(figure), io.BytesIO()
        figure.savefig(png, format="png", dpi=DPI)
    write_atomically(folder / f"{outcome.stem}.svg", partial(Path.write_text, data=svg, encoding="utf-8"))
    write_atomically(folder / f"{outcome.stem}.png", partial(Path.write_bytes, data=png.getvalue()))


def _panels(count: int, height: float = 3.0) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(3.6 * count, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    return figure, list(axes)


def _title(outcome: Outcome) -> str:
    """Return what marks our values in a picture that is copied elsewhere."""
    return f"here ({outcome.mode}{f', {outcome.stand_in}' if outcome.stand_in else ''})"


def draw_accuracy_over_time(outcome: Outcome) -> Figure:
    """Draw figure 3: mean accuracy over mean seconds, here and in the paper."""
    figure, (left, right) = _panels(2)
    accuracy, seconds = outcome.table("accuracy"), outcome.table("seconds")
    column = accuracy.average_column
    ours = {
        row: (seconds.mean(row, column), accuracy.mean(row, column)) for row in accuracy.rows if row != "Vanilla TCA"
    }
    theirs = outcome.published.tables["figure"].rows
    _scatter(left, {row: point for row, point in ours.items() if None not in point})
    _scatter(right, {row: (values["seconds"], values["accuracy"]) for row, values in theirs.items()})
    left.set_title(_title(outcome) + (", TCA and RF-TCA: oracle" if accuracy.oracles else ""))
    right.set_title("paper (oracle)")
    left.set_ylabel("mean accuracy over all pairs in %")
    return figure


def _scatter(axis: Axes, points: dict[str, Any]) -> None:
    curve = [(row, point) for row, point in points.items() if row.startswith(RANDOM_FEATURES)]
    others = [(row, point) for row, point in points.items() if not row.startswith(RANDOM_FEATURES)]
    if curve:
        axis.plot(
            *zip(*(point for _, point in curve), strict=True), color=COLOURS[0], marker="o", label=RANDOM_FEATURES
        )
        for row, point in curve:
            frequencies = row.partition("=")[2].rstrip(")")
            axis.annotate(
                frequencies, point, (0, -11), textcoords="offset points", fontsize=7, ha="center", color=COLOURS[0]
            )
    for row, point in others:
        number = ALIGNMENTS.index(row)
        axis.plot(*point, linestyle="", color=COLOURS[number], marker=MARKERS[number], label=row)
    axis.set_xscale("log")
    axis.set_xlabel("seconds of one alignment")
    axis.margins(0.12)
    axis.legend(fontsize=7, ncols=2)


def draw_interval(outcome: Outcome) -> Figure:
    """Draw figures 4 and 7: accuracy over T_C, here and in the paper."""
    figure, (left, right) = _panels(2, 3.4)
    table, theirs = outcome.table("accuracy"), outcome.published.tables["accuracy"]
    for row in table.rows:
        points = [(float(column), table.mean(row, column), table.spread(row, column)) for column in table.columns]
        _curve(left, row, [point for point in points if point[1] is not None])
    for row, entries in theirs.rows.items():
        _curve(right, row, [(float(column), *entry) for column, entry in entries.items() if entry is not None])
    left.set_title(_title(outcome))
    right.set_title("paper")
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xlabel("T_C (1,600 rounds in total)")
        axis.set_ylim(0, 100)
        axis.set_xticks([float(column) for column in theirs.columns], theirs.columns)
        axis.minorticks_off()
    left.set_ylabel("accuracy on the target in %")
    curves: dict[Any, Any] = {}
    for axis in (right, left):
        handles, labels = axis.get_legend_handles_labels()
        curves |= dict(zip(labels, handles, strict=True))
    figure.legend(curves.values(), curves.keys(), loc="outside lower center", ncols=3)
    return figure


def _curve(axis: Axes, row: str, points: Sequence[tuple[Any, Any, Any]]) -> None:
    """Draw one row, such as ``FedAvg →mt``, with error bars; FedAvg is dashed, each target has its colour."""
    if not points:
        return
    xs, means, spreads = zip(*points, strict=True)
    number = TARGETS.index(row.rpartition("→")[2])
    style = "--" if row.startswith("FedAvg") else "-"
    bars = [spread or 0.0 for spread in spreads]
    axis.errorbar(xs, means, bars, linestyle=style, color=COLOURS[number], marker=MARKERS[number], capsize=2, label=row)


def draw_heterogeneity(outcome: Outcome) -> Figure:
    """Draw figure 5: bars of four settings, here and in the paper."""
    table, theirs = outcome.table("accuracy"), outcome.published.tables["accuracy"]
    figure, (axis,) = _panels(1, 3.4)
    figure.set_size_inches(7.2, 3.6)
    groups = [(column, HERE) for column in table.columns] + [(column, PAPER) for column in theirs.columns]
    width = 0.8 / len(theirs.rows)
    for number, row in enumerate(theirs.rows):
        heights = [table.mean(row, column) if origin == HERE else theirs.rows[row][column] for column, origin in groups]
        places = [group + (number - 1.5) * width for group in range(len(groups))]
        spreads = [(table.spread(row, column) if origin == HERE else None) or 0.0 for column, origin in groups]
        bars = axis.bar(
            places,
            [height or 0.0 for height in heights],
            width,
            yerr=spreads,
            error_kw={"linewidth": 0.8, "capsize": 2},
            color=COLOURS[number],
            hatch=("", "//", "..", "xx")[number],
            edgecolor="white",
            label=row,
        )
        axis.bar_label(bars, [f"{height:.1f}" if height is not None else "" for height in heights], fontsize=7)
    names = {HERE: _title(outcome), PAPER: PAPER}
    axis.set_xticks(range(len(groups)), [f"{column}\n{names[origin]}" for column, origin in groups])
    axis.set_ylabel("accuracy on the target in %")
    axis.set_ylim(0, 110)
    axis.grid(axis="x", visible=False)
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def draw_gamma(outcome: Outcome) -> Figure:
    """Draw figure 6: accuracy over γ, with the informative interval shaded, here and in the paper."""
    figure, axes = _panels(2)
    interval, marked = outcome.table("informative interval"), outcome.published.extra["informative"]
    for axis, name in zip(axes, ("TCA", "R-TCA"), strict=True):
        ours, theirs = outcome.table(name), outcome.published.tables[name]
        _over_gamma(axis, {column: ours.mean("accuracy", column) for column in ours.columns}, _title(outcome), 0)
        _over_gamma(axis, theirs.rows["accuracy"], PAPER, 1)
        low, high = (interval.mean(name, end) for end in ("low", "high"))
        if low is not None and high is not None:
            axis.axvspan(low, high, color=COLOURS[0], alpha=0.15, label="informative, here", linewidth=0)
        hatched: Any = {"facecolor": "none", "edgecolor": COLOURS[1], "hatch": "///", "alpha": 0.5, "linewidth": 0}
        axis.axvspan(*marked[name], label="informative, paper", **hatched)
        axis.set_title(name)
        axis.set_xlabel("log10 γ, in units of n / (n_S n_T)")
    axes[0].set_ylabel("accuracy on the target in %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _over_gamma(axis: Axes, entries: dict[str, Any], label: str, number: int) -> None:
    points = [(float(column), value) for column, value in entries.items() if value is not None]
    if points:
        axis.plot(*zip(*points, strict=True), color=COLOURS[number], marker=MARKERS[number], markersize=3, label=label)


def draw_theorem(outcome: Outcome) -> Figure:
    """Draw the error of RF-TCA over N for each n, with the rate of the theorem and the bound of its proof."""
    error, bound, kernel, predicted = outcome.tables[:4]
    figure, (left, right) = _panels(2, 3.4)
    for number, row in enumerate(error.rows):
        _over_number(left, error, row, number, "-", row)
        _over_number(left, bound, row, number, ":", None)
        _over_number(right, kernel, row, number, "-", row)
        _over_number(right, predicted, row, number, ":", None)
    left.plot([], [], ":", color="grey", label="Davis-Kahan bound")
    right.plot([], [], ":", color="grey", label=predicted.name)
    left.set_title(f"error of the aligned rows ({outcome.mode})")
    right.set_title("relative error of the kernel matrix")
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("N")
        axis.legend()
    return figure


def _over_number(axis: Axes, table: Table, row: str, number: int, style: str, label: str | None) -> None:
    points = [(float(column), mean) for column in table.columns if (mean := table.mean(row, column)) is not None]
    if points:
        marker = MARKERS[number] if label else None
        axis.plot(*zip(*points, strict=True), linestyle=style, color=COLOURS[number], marker=marker, label=label)
