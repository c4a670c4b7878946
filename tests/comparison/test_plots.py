"""Plots of accuracy over the values of a key."""

import pytest
from matplotlib.figure import Figure

from fedrf.comparison.plots import _set_positions, draw, write_plots
from fedrf.comparison.tasks import Task
from fedrf.experiment.drawing import as_svg
from tests.comparison.conftest import make_comparison
from tests.experiment.test_drawing import NAMES, drawn_texts


def test_one_plot_for_each_key(tmp_path):
    vary = ["align.gamma=0.0005,0.05,0.5", "adapt.when=last,never", "federation.classifier_interval=1,20"]
    options = {"vary": vary, "targets": ["street", "rendered"], "methods": ["fedrf-plus", "fedavg"]}
    comparison = make_comparison(tmp_path, lambda variant, target, seed: 0.5 + 0.1 * seed, **options)
    assert write_plots(comparison) == ["align.gamma.svg", "adapt.when.svg", "federation.classifier_interval.svg"]
    drawn = (tmp_path / "align.gamma.svg").read_text()
    assert drawn == draw(comparison, "align.gamma")
    assert drawn_texts(drawn) >= {"0.0005", "0.5", "fedavg", "fedrf-plus", "→ street"}
    empty = make_comparison(tmp_path, lambda *_: None, **options)
    assert "<svg" in draw(empty, "adapt.when")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES)
def test_names_of_domains_and_values_are_drawn_as_they_are(name, tmp_path, monkeypatch):
    monkeypatch.setattr(Task, "label", f"→ {name}")
    options = {"vary": ["adapt.when=last,never"], "targets": ["street", "rendered"], "methods": ["fedrf-plus"]}
    assert f"→ {name}" in drawn_texts(draw(make_comparison(tmp_path, lambda *_: 0.5, **options), "adapt.when"))
    axis = Figure().subplots()
    _set_positions(axis, [name, "other"])
    assert name in drawn_texts(as_svg(axis.figure))


@pytest.mark.parametrize(
    ("values", "scale"), [("0.001,0.1", "log"), ("0.1,0.2", "linear"), ("0,0.001,0.1", "symlog"), ("-1,100", "linear")]
)
def test_values_that_span_decades_get_a_logarithmic_axis(values, scale):
    axis = Figure().subplots()
    numbers = [float(value) for value in values.split(",")]
    assert list(_set_positions(axis, numbers).values()) == numbers
    assert axis.get_xscale() == scale
