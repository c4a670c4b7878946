"""report.html of a sweep, a self-contained file: its table, and plots of accuracy and score over each parameter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from jinja2 import Environment
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrf.experiment.display import percent, size
from fedrf.experiment.drawing import as_svg, embedded, literal
from fedrf.experiment.report import STYLE
from fedrf.files import write_atomically
from tune.plan import SweepPlan
from tune.results import TrialResult, format_value, ranked, symbol
from tune.space import Parameter

MEASURES = {"accuracy": "accuracy on the target", "score": "score, without labels"}

TEMPLATE = Environment(autoescape=True).from_string("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fedrf sweep</title><style>{{ style }}</style></head><body>
<h1>{{ summary.recipe }}: {{ results|length }} trials</h1>
<p>{% for status, number in summary.counts.items() if number %}{{ number }} {{ status }}{{ ", " if not loop.last }}{%
endfor %}. Trials compare by {{ select }} (track.select), which needs no labels; the best of those that finished is in
best.yaml{% if summary.best %} (trial {{ summary.best.number }}, accuracy
{{ percent(summary.best.accuracy) }}){% endif %}. Accuracies are for the record{% if summary.oracle %}: the best of
them, {{ percent(summary.oracle.accuracy) }} in trial {{ summary.oracle.number }}, is an oracle's choice{% endif %}.</p>
{% for plot in plots %}{{ plot|safe }}{% endfor %}
<table><tr><th>trial</th><th>status</th><th>score</th><th>accuracy</th>{% for key in keys %}<th>{{ symbol(key) }}</th>
{% endfor %}<th>sent</th><th>seconds</th><th>came to</th></tr>
{% for trial in results %}<tr><td class="n">{{ trial.number }}</td><td>{{ trial.status }}
{%- if trial.error %}: {{ trial.error }}{% endif %}</td>
<td class="n">{{ "–" if trial.score is none else "%.4f"|format(trial.score) }}</td>
<td class="n">{{ percent(trial.accuracy) }}</td>
{% for key in keys %}<td class="n">{{ format_value(trial.point[key]) }}</td>{% endfor %}
<td class="n">{{ "–" if trial.bytes is none else size(trial.bytes) }}</td>
<td class="n">{{ "–" if trial.seconds is none else "%.0f"|format(trial.seconds) }}</td>
<td class="n">{{ trial.progress }}/{{ trial.length }}</td></tr>
{% endfor %}</table></body></html>
""")


def write_report(folder: Path, summary: dict[str, Any], results: Sequence[TrialResult], plan: SweepPlan) -> None:
    """Write the page, and each of its plots also as an SVG file."""
    plots = {key: draw(results, key, parameter, plan) for key, parameter in plan.space.items()} if results else {}
    for key, plot in plots.items():
        (folder / f"{key}.svg").write_text(plot, encoding="utf-8")
    page = TEMPLATE.render(
        summary=summary,
        select=plan.config.track.select,
        results=ranked(results),
        keys=list(plan.space),
        plots=[embedded(plot) for plot in plots.values()],
        style=STYLE,
        symbol=symbol,
        format_value=format_value,
        percent=percent,
        size=size,
    )
    write_atomically(folder / "report.html", lambda path: path.write_text(page, encoding="utf-8"))


def draw(results: Sequence[TrialResult], key: str, parameter: Parameter, plan: SweepPlan) -> str:
    """Plot accuracy and score over one parameter; values that several trials share get mean and deviation."""
    figure = Figure(figsize=(10, 3), layout="constrained")
    for axis, (name, title) in zip(figure.subplots(1, 2), MEASURES.items(), strict=True):
        if key == "align.gamma" and plan.measured:
            axis.axvspan(*plan.measured.informative_gamma, color="0.92", label="informative range")
        for method, trials in _by_method(results, key).items():
            _draw_series(axis, trials, key, name, method)
        numbers = [result.point[key] for result in results if type(result.point[key]) in (int, float)]
        is_numeric = len(numbers) == len(results)
        if is_numeric and parameter.scale == "log" and min(numbers) > 0:
            axis.set_xscale("log")
        if is_numeric and parameter.values is not None:
            axis.set_xticks(sorted(set(numbers)), [format_value(number) for number in sorted(set(numbers))])
            axis.minorticks_off()
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(symbol(key), fontsize=9)
        axis.tick_params(labelsize=8)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7)
    return as_svg(figure)


def _by_method(results: Sequence[TrialResult], key: str) -> dict[str, list[TrialResult]]:
    """Group trials by method, if the method is swept too."""
    groups: dict[str, list[TrialResult]] = {}
    for result in results:
        groups.setdefault("" if key == "method" else str(result.point.get("method", "")), []).append(result)
    return groups


def _draw_series(axis: Axes, trials: Sequence[TrialResult], key: str, measure: str, method: str) -> None:
    """Draw finished trials, stopped ones in grey, and means with deviations where several trials share a value."""
    for status, colour, label in (
        ("stopped early", "0.75", "stopped early"),
        ("finished", None, literal(method or "finished")),
    ):
        drawn = [trial for trial in trials if trial.status == status and getattr(trial, measure) is not None]
        if not drawn:
            continue
        positions = _positions([trial.point[key] for trial in drawn])
        values = [getattr(trial, measure) for trial in drawn]
        groups = {
            position: [value for other, value in zip(positions, values, strict=True) if other == position]
            for position in dict.fromkeys(positions)
        }
        if status == "finished" and max(map(len, groups.values())) > 1:
            _draw_means(axis, groups, f"{label}: mean and deviation")
        else:
            axis.plot(positions, values, "o", color=colour, markersize=4, label=label)


def _draw_means(axis: Axes, groups: dict[Any, list[float]], label: str) -> None:
    ordered = sorted(groups)
    means = [mean(groups[position]) for position in ordered]
    deviations = [pstdev(groups[position]) for position in ordered]
    axis.errorbar(ordered, means, deviations, fmt="o-", capsize=3, linewidth=1, markersize=3, label=label)


def _positions(values: Sequence[Any]) -> list[Any]:
    """Return numbers if all values are numbers, else text."""
    is_number = all(type(value) in (int, float) for value in values)
    return [float(value) for value in values] if is_number else [literal(str(value)) for value in values]
