"""report.html of a sweep: its table, and accuracy and score over each parameter; one file without links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from jinja2 import Environment
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrf.experiment.display import percent, size
from fedrf.experiment.report import STYLE, as_svg, embedded
from fedrf.files import write_atomically
from tune.outcome import Outcome, ranked, shown, symbol
from tune.plan import Plan
from tune.space import Parameter

FIGURES = {"accuracy": "accuracy on the target", "score": "score, without labels"}

TEMPLATE = Environment(autoescape=True).from_string("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fedrf sweep</title><style>{{ style }}</style></head><body>
<h1>{{ summary.recipe }}: {{ outcomes|length }} trials</h1>
<p>{% for status, number in summary.counts.items() if number %}{{ number }} {{ status }}{{ ", " if not loop.last }}{%
endfor %}. Trials compare by {{ select }} (track.select), which needs no labels; the best of those that finished is in
best.yaml{% if summary.best %} (trial {{ summary.best.number }}, accuracy
{{ percent(summary.best.accuracy) }}){% endif %}. Accuracies are for the record{% if summary.oracle %}: the best of
them, {{ percent(summary.oracle.accuracy) }} in trial {{ summary.oracle.number }}, is an oracle's choice{% endif %}.</p>
{% for picture in pictures %}{{ picture|safe }}{% endfor %}
<table><tr><th>trial</th><th>status</th><th>score</th><th>accuracy</th>{% for key in keys %}<th>{{ symbol(key) }}</th>
{% endfor %}<th>sent</th><th>seconds</th><th>came to</th></tr>
{% for one in outcomes %}<tr><td class="n">{{ one.number }}</td><td>{{ one.status }}
{%- if one.error %}: {{ one.error }}{% endif %}</td>
<td class="n">{{ "–" if one.score is none else "%.4f"|format(one.score) }}</td>
<td class="n">{{ percent(one.accuracy) }}</td>
{% for key in keys %}<td class="n">{{ shown(one.point[key]) }}</td>{% endfor %}
<td class="n">{{ "–" if one.bytes is none else size(one.bytes) }}</td>
<td class="n">{{ "–" if one.seconds is none else "%.0f"|format(one.seconds) }}</td>
<td class="n">{{ one.progress }}/{{ one.length }}</td></tr>
{% endfor %}</table></body></html>
""")


def write_report(folder: Path, summary: dict[str, Any], outcomes: Sequence[Outcome], plan: Plan) -> None:
    """Write the page, and each of its pictures as an SVG file beside it."""
    drawings = {key: draw(outcomes, key, parameter, plan) for key, parameter in plan.space.items()} if outcomes else {}
    for key, drawing in drawings.items():
        (folder / f"{key}.svg").write_text(drawing)
    page = TEMPLATE.render(
        summary=summary,
        select=plan.config.track.select,
        outcomes=ranked(outcomes),
        keys=list(plan.space),
        pictures=[embedded(drawing) for drawing in drawings.values()],
        style=STYLE,
        symbol=symbol,
        shown=shown,
        percent=percent,
        size=size,
    )
    write_atomically(folder / "report.html", lambda path: path.write_text(page))


def draw(outcomes: Sequence[Outcome], key: str, parameter: Parameter, plan: Plan) -> str:
    """Draw accuracy and score over one parameter; values that several trials share get mean and deviation."""
    figure = Figure(figsize=(10, 3), layout="constrained")
    for axis, (name, title) in zip(figure.subplots(1, 2), FIGURES.items(), strict=True):
        if key == "align.gamma" and plan.measured:
            axis.axvspan(*plan.measured.informative_gamma, color="0.92", label="informative range")
        for method, members in _by_method(outcomes, key).items():
            _draw_series(axis, members, key, name, method)
        numbers = [one.point[key] for one in outcomes if type(one.point[key]) in (int, float)]
        is_numeric = len(numbers) == len(outcomes)
        if is_numeric and parameter.scale == "log" and min(numbers) > 0:
            axis.set_xscale("log")
        if is_numeric and parameter.values is not None:
            axis.set_xticks(sorted(set(numbers)), [shown(number) for number in sorted(set(numbers))])
            axis.minorticks_off()
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(symbol(key), fontsize=9)
        axis.tick_params(labelsize=8)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7)
    return as_svg(figure)


def _by_method(outcomes: Sequence[Outcome], key: str) -> dict[str, list[Outcome]]:
    """Split trials by method, where that is swept too."""
    split: dict[str, list[Outcome]] = {}
    for one in outcomes:
        split.setdefault("" if key == "method" else str(one.point.get("method", "")), []).append(one)
    return split


def _draw_series(axis: Axes, members: Sequence[Outcome], key: str, figure: str, method: str) -> None:
    """Draw finished trials, the others pale, and a line through the means of values that several trials share."""
    for status, colour, label in (("stopped early", "0.75", "stopped early"), ("finished", None, method or "finished")):
        chosen = [one for one in members if one.status == status and getattr(one, figure) is not None]
        places = _places([one.point[key] for one in chosen])
        values = [getattr(one, figure) for one in chosen]
        if not chosen:
            continue
        groups = {
            place: [v for p, v in zip(places, values, strict=True) if p == place] for place in dict.fromkeys(places)
        }
        if status == "finished" and max(map(len, groups.values())) > 1:
            ordered = sorted(groups)
            axis.errorbar(
                ordered,
                [mean(groups[place]) for place in ordered],
                [pstdev(groups[place]) for place in ordered],
                fmt="o-",
                capsize=3,
                linewidth=1,
                markersize=3,
                label=f"{label}: mean and deviation",
            )
        else:
            axis.plot(places, values, "o", color=colour, markersize=4, label=label)


def _places(values: Sequence[Any]) -> list[Any]:
    """Return numbers where all are, else words."""
    is_number = all(type(value) in (int, float) for value in values)
    return [float(value) for value in values] if is_number else [str(value) for value in values]
