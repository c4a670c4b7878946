"""Draw accuracy against bytes for all methods, and with compression, from the tables of ``docs/results.md``.

``python docs/figures/bytes.py [FILE]`` writes ``docs/figures/bytes.svg``, or the file that is named.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
COMPRESSED = "`fedrf-plus`, frozen extractors"  # its table in docs/results.md; drawn beside Office-31
TITLES = {"Office-31": "Office-31", "Office-Caltech10, SURF": "Office-Caltech10, SURF", "embedded digits": "digits"}
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
INK, MUTED, OURS, OTHERS = "#1f2430", "#8a93a3", "#b45309", "#566072"
LABELS = {  # offset in points and alignment of a name; other methods are dots
    "fedrf-oneshot": ((7, 0), "left"),
    "fedrf-plus": ((7, 0), "left"),
    "fedrf-tca": ((0, -11), "center"),
    "fedavg": ((-6, -2), "right"),
    "source-only": ((6, 0), "left"),
}
COMPRESSED_LABELS = {"int4": ((0, 9), "center"), "low-rank": ((-2, -9), "right"), "none": ((0, -9), "center")}
ROW = re.compile(r"^\| `([\w-]+)` \|.*\| ([\d.]+)(?: ± [\d.]+)? \| ([\d.]+) (kB|MB|GB) \| [\d.]+ \|$", re.MULTILINE)


def draw_compressed(axes: Axes, found: dict[str, tuple[float, float]]) -> None:
    """Draw one method with different compressions, joined by a line."""
    for name, (sent, accuracy) in found.items():
        axes.plot(sent, accuracy, "s", color=OURS, markerfacecolor="white", markersize=4)
        if name in COMPRESSED_LABELS:
            offset, side = COMPRESSED_LABELS[name]
            style = {"ha": side, "va": "center", "fontsize": 7, "color": OURS}
            axes.annotate(name, (sent, accuracy), offset, textcoords="offset points", **style)
    text = "squares: fedrf-plus with frozen extractors\nand federation.compression"
    axes.text(0.03, 0.5, text, transform=axes.transAxes, fontsize=7, color=OURS)
    axes.plot(*zip(*sorted(found.values()), strict=True), "-", color=OURS, linewidth=0.8, alpha=0.6, zorder=1)


def points(page: str, heading: str) -> dict[str, tuple[float, float]]:
    """Return bytes and mean accuracy of each federated method in one table of the page."""
    table = page[page.index(f"\n| {heading} | →") :].split("\n\n")[0]
    rows = ROW.findall(table)
    return {
        name: (float(sent) * UNITS[unit], float(accuracy))
        for name, accuracy, sent, unit in rows
        if not name.startswith(("pooled", "target"))
    }


def draw(axes: Axes, title: str, found: dict[str, tuple[float, float]]) -> None:
    """Draw one data set."""
    for name, (sent, accuracy) in found.items():
        colour = OURS if name.startswith("fedrf") else OTHERS
        axes.plot(sent, accuracy, "o", color=colour, markersize=6 if name.startswith("fedrf") else 4)
        if name in LABELS:
            offset, side = LABELS[name]
            style = {"ha": side, "va": "center", "fontsize": 8, "color": colour}
            axes.annotate(name, (sent, accuracy), offset, textcoords="offset points", **style)
    axes.set_xscale("log")
    axes.set_xlim(1e5, 2e10)
    axes.set_xticks([1e5, 1e6, 1e7, 1e8, 1e9, 1e10], ["0.1 MB", "1 MB", "10 MB", "0.1 GB", "1 GB", "10 GB"])
    axes.set_title(title, fontsize=10, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    axes.grid(color=MUTED, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def main(file: Path) -> None:
    """Draw the figure."""
    page = (HERE.parent / "results.md").read_text()
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    for axes, (heading, title) in zip(figure.subplots(1, 3), TITLES.items(), strict=True):
        draw(axes, title, points(page, heading))
        if title == "Office-31":
            draw_compressed(axes, points(page, COMPRESSED))
    figure.supxlabel("bytes sent in one run, both ways", fontsize=9, color=INK)
    figure.supylabel("accuracy on the target in %", fontsize=9, color=INK)
    with mpl.rc_context({"svg.hashsalt": "fedrf"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "bytes.svg")
