"""Names of users in figures: shown as they are, without warnings."""

import html
import re

import pytest
from matplotlib.figure import Figure

from fedrf.experiment.drawing import as_svg, literal
from tests.conftest import CURVES

NAMES = (r"a$\foo$b", r"a\$b$", "急诊科", "_hidden", "<i>&amp;")


def drawn_texts(svg):
    """Return the texts of an SVG, which are text and not outlines."""
    return {html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)}


@pytest.mark.filterwarnings("error")
def test_the_legend_of_a_report_has_all_names():
    rows = [{"client": name, "round": number, "loss": 0.5} for name in NAMES for number in (1, 2)]
    assert drawn_texts(CURVES(rows, 2, NAMES[0])) >= set(NAMES)


def test_ticks_of_logarithmic_axes_stay_powers():
    figure = Figure()
    axis = figure.subplots()
    axis.set_xscale("log")
    axis.set_title(literal("a$b$"))
    svg = as_svg(figure)
    assert "a$b$" in drawn_texts(svg)
    assert not any("$" in text for text in drawn_texts(svg) - {"a$b$"})
