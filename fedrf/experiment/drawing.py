"""Figures as SVG, with names of users as they are: any script, and no mathematics between dollar signs."""

from __future__ import annotations

import io
import warnings
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

# Text stays text, so that the browser finds a font for each script; identifiers are random without a salt.
SVG_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "fedrf"}


def literal(text: str) -> str:
    """Return text that matplotlib draws as `text`; it reads what is between two dollar signs as mathematics."""
    return text.replace("$", r"\$")


def as_svg(figure: Figure) -> str:
    """Return a figure as the text of an SVG file, which is the same every time."""
    drawing = io.StringIO()
    with rc_context(SVG_SETTINGS), warnings.catch_warnings():
        # Matplotlib's own font has no Chinese, for example; it only measures the text here.
        warnings.filterwarnings("ignore", r"Glyph .* missing from")
        figure.savefig(drawing, format="svg", metadata={"Date": None})
    return drawing.getvalue()


def embedded(svg: str) -> str:
    """Return the part of an SVG file that is embedded in a page."""
    return svg[svg.index("<svg") :]
