"""Draw the protocol of fedrf-plus in one figure.

``python docs/figures/protocol.py [FILE]`` writes ``docs/figures/protocol.svg``, or the file that is named.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

INK, MUTED, PAPER, PANEL, EDGE = "#1f2430", "#565f70", "#ffffff", "#f3f5f9", "#b9c2d0"
EMBEDDING, ALIGNER, CLASSIFIER, EXTRACTOR, FIXED = "#b45309", "#1d4ed8", "#15803d", "#7e22ce", "#566072"
PIPELINE = [  # text, centre, width and colour of the boxes in a client, from left to right
    ("samples", 3.9, 7.8, FIXED),
    ("G", 11.6, 3.2, EXTRACTOR),
    ("random\nfeatures", 19.2, 8.0, EMBEDDING),
    ("W", 26.7, 3.2, ALIGNER),
    ("C", 31.8, 3.2, CLASSIFIER),
]
WIDTH, HEIGHT = 127.0, 56.0  # of the figure, in units
SOURCES = [("Source 1", 41.5), ("Source 2", 26.5), ("Source K", 8.0)]
LEFT, COORDINATOR, TARGET = 2.0, (54.0, 71.0), (89.0, 26.5)


def box(axes: Axes, x: float, y: float, width: float, height: float, face: str, edge: str, above: bool = False) -> None:
    """Draw a rounded box with its lower left corner at (x, y), above or below the arrows."""
    shape = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.9", zorder=3 if above else 1)
    shape.set(facecolor=face, edgecolor=edge, linewidth=1)
    axes.add_patch(shape)


def chip(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
    """Draw a coloured box with white text, centred at (x, y)."""
    box(axes, x - width / 2, y - height / 2, width, height, colour, colour, above=True)
    style = {"ha": "center", "va": "center", "fontsize": 9, "weight": "bold", "linespacing": 1.05}
    axes.text(x, y, text, color="white", zorder=4, **style)


def arrow(axes: Axes, start: float, end: float, y: float) -> None:
    """Draw a horizontal arrow."""
    style = {
        "zorder": 2,
        "arrowstyle": "-|>",
        "color": MUTED,
        "linewidth": 1.2,
        "shrinkA": 0,
        "shrinkB": 0,
        "mutation_scale": 11,
    }
    axes.annotate("", xy=(end, y), xytext=(start, y), arrowprops=style)


def client(axes: Axes, x: float, y: float, name: str, data: str, loss: str) -> None:
    """Draw a client with its network; (x, y) is the lower left corner."""
    box(axes, x, y, 36.0, 12.5, PANEL, EDGE)
    axes.text(x + 1.6, y + 10.4, name, color=INK, fontsize=11, weight="bold", va="center")
    axes.text(x + 34.4, y + 10.4, data, color=MUTED, fontsize=9.5, ha="right", va="center")
    for index, (text, centre, width, colour) in enumerate(PIPELINE):
        chip(axes, x + 1.4 + centre, y + 6.1, width, 3.9, text, colour)
        if index:
            _, before, before_width, _ = PIPELINE[index - 1]
            arrow(axes, x + 1.4 + before + before_width / 2, x + 1.4 + centre - width / 2, y + 6.1)
    axes.text(x + 18.0, y + 2.0, loss, color=INK, fontsize=9.5, ha="center", va="center")


def messages(axes: Axes, start: float, end: float, y: float, texts: tuple[str, str, str, str]) -> None:
    """Draw an arrow that carries Σℓ, G, W and C."""
    arrow(axes, start, end, y)
    middle, colours = (start + end) / 2, (EMBEDDING, EXTRACTOR, ALIGNER, CLASSIFIER)
    for offset, text, colour in zip((-5.25, -1.75, 1.75, 5.25), texts, colours, strict=True):
        if text:
            chip(axes, middle + offset, y, 3.1, 2.6, text, colour)


def coordinator(axes: Axes) -> None:
    """Draw the coordinator."""
    (left, right), middle = COORDINATOR, sum(COORDINATOR) / 2
    box(axes, left, 8.0, right - left, 46.0, "#e8ecf5", EDGE)
    axes.text(middle, 51.9, "Coordinator", color=INK, fontsize=11, weight="bold", ha="center", va="center")
    duties = [
        (45.4, "relays", "Σℓ", EMBEDDING, "every round"),
        (35.9, "averages", "G", EXTRACTOR, "every $T_G$ rounds"),
        (26.9, "averages", "W", ALIGNER, "every $T_W$ rounds,\nthen takes the\nproximal step"),
        (13.6, "averages", "C", CLASSIFIER, "every $T_C$ rounds"),
    ]
    for y, verb, symbol, colour, when in duties:
        axes.text(middle, y + 2.9, verb, color=INK, fontsize=9.5, ha="center", va="center")
        chip(axes, middle, y, 3.5, 2.6, symbol, colour)
        axes.text(middle, y - 1.8, when, color=INK, fontsize=9.5, ha="center", va="top")


def legend(axes: Axes) -> None:
    """Write what happens in a round, what the messages are, and what is never sent."""
    steps = (
        "One round",
        "Clients send Σℓ; G, W and C when due.",
        "Sources receive the Σℓ of the target,",
        "and the target those of the sources.",
        "Averages of G, W and C replace the local ones.",
    )
    for index, text in enumerate(steps):
        weight = "normal" if index else "bold"
        axes.text(TARGET[0], 52.2 - 2.7 * index, text, color=INK, fontsize=9.5, va="center", weight=weight)
    sizes = (
        ("Σℓ", EMBEDDING, "mean of random features: 2N numbers"),
        ("G", EXTRACTOR, "learnable part of the extractor"),
        ("W", ALIGNER, "aligner: 2N × m numbers"),
        ("C", CLASSIFIER, "classifier: (m + 1) numbers per class"),
    )
    for index, (symbol, colour, text) in enumerate(sizes):
        y = 20.9 - 3.9 * index
        chip(axes, TARGET[0] + 1.75, y, 3.5, 2.6, symbol, colour)
        axes.text(TARGET[0] + 4.6, y, text, color=INK, fontsize=9.5, va="center")
    never = (
        "Samples and labels stay at their client. Sources send nothing to each other. No message grows with the data."
    )
    axes.text(WIDTH / 2, 3.2, never, color=INK, fontsize=10.5, weight="bold", ha="center", va="center")


def draw() -> Figure:
    """Return the figure."""
    figure = Figure(figsize=(WIDTH / 11.5, HEIGHT / 11.5), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.set_axis_off()
    for name, y in SOURCES:
        client(axes, LEFT, y, name, "labelled", "trains G, W and C: minimises $L_C$ + λ$\\,L_{MMD}$")
        messages(axes, LEFT + 36.0, COORDINATOR[0], y + 8.6, ("Σℓ", "G", "W", "C"))
        messages(axes, COORDINATOR[0], LEFT + 36.0, y + 4.0, ("Σℓ", "G", "W", "C"))
    axes.text(LEFT + 18.0, 23.5, "⋮", color=MUTED, fontsize=14, ha="center", va="center")
    coordinator(axes)
    x, y = TARGET
    client(axes, x, y, "Target", "unlabelled", "after the last round: adapts its G alone")
    messages(axes, x, COORDINATOR[1], y + 8.6, ("Σℓ", "", "", ""))
    messages(axes, COORDINATOR[1], x, y + 4.0, ("Σℓ", "G", "W", "C"))
    legend(axes)
    return figure


def main(path: Path) -> None:
    """Write the figure; text becomes outlines, so that it looks the same everywhere."""
    mpl.rcParams["svg.hashsalt"] = "fedrf"
    draw().savefig(path, metadata={"Date": None, "Creator": None} if path.suffix == ".svg" else None, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg"))
