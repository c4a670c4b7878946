"""report.html: the results of one or several runs, as one self-contained file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment
from matplotlib.figure import Figure

from fedrf.experiment.display import percent, size
from fedrf.experiment.drawing import as_svg, embedded, literal
from fedrf.experiment.results import RunFolder
from fedrf.files import write_atomically

CURVES = {"accuracy": "accuracy on the target", "loss": "loss", "mmd": "MMD"}

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } th, td { text-align: left; padding: .25em .9em .25em 0 }
th { border-bottom: 1px solid #888 } td.n { text-align: right } svg { max-width: 100%; height: auto }
pre { background: #f4f4f4; padding: .8em; overflow-x: auto }
"""

TEMPLATE = Environment(autoescape=True).from_string("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fedrf</title><style>{{ style }}</style></head><body>
<h1>{{ runs|length }} run{{ "s" if runs|length > 1 }}</h1>
<p>"Final" is after the last round and step. "Selected" is the evaluation with the best score, chosen without
labels. "Oracle" is the best evaluation, chosen with target labels.</p>
<table><tr><th>method</th><th>data</th><th>sources → target</th><th>seed</th><th>status</th><th>final</th>
<th>selected</th><th>oracle</th><th>rounds</th><th>sent</th><th>seconds</th></tr>
{% for run in runs %}<tr><td>{{ run.method }}</td><td>{{ run.dataset }}</td>
<td>{{ run.sources|join(", ") }} → {{ run.target }}</td>
<td class="n">{{ run.seed }}</td><td>{{ run.status }}</td>
{% for key in ("final", "selected", "oracle") %}<td class="n">{{ percent(run.target_accuracy[key]) }}</td>{% endfor %}
<td class="n">{{ run.rounds }}</td><td class="n">{{ size(run.communication.bytes_total) }}</td>
<td class="n">{{ "%.1f"|format(run.seconds.total) }}</td></tr>
{% endfor %}</table>
{% for run in runs %}<h2>{{ run.method }} → {{ run.target }}, seed {{ run.seed }}</h2>
{{ run.picture|safe }}
<table><tr><th>kind</th><th>sent, both ways</th></tr>
{% for kind, number in run.communication.bytes_by_kind.items() %}<tr><td>{{ kind }}</td>
<td class="n">{{ size(number) }}</td></tr>{% endfor %}</table>
{% if run.placement %}<h3>Who ran where</h3>
<table><tr><th>client</th><th>node</th><th>device</th><th>hardware</th><th>memory</th></tr>
{% for client, place in run.placement.items() %}<tr><td>{{ client }}</td><td>{{ place.node }}</td>
<td>{{ place.device }}</td><td>{{ place.model }}</td><td class="n">{{ size(place.memory) }}</td></tr>{% endfor %}
</table><p>Determinism: {{ run.determinism }}.</p>{% endif %}
{% if run.notes %}<h3>Notes</h3><ul>{% for note in run.notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
{% if run.suspicions %}<h3>Messages that were not used</h3>
<table><tr><th>client</th><th>reason</th><th>times</th></tr>
{% for client, reasons in run.suspicions.items() %}{% for reason, times in reasons.items() %}<tr><td>{{ client }}</td>
<td>{{ reason }}</td><td class="n">{{ times }}</td></tr>{% endfor %}{% endfor %}</table>{% endif %}
{% if run.failures %}<h3>Failures</h3>
<ul>{% for failure in run.failures %}<li>{{ failure }}</li>{% endfor %}</ul>{% endif %}
<details><summary>Configuration</summary><pre>{{ run.config }}</pre></details>
{% endfor %}</body></html>
""")


def write_report(folders: Sequence[Path], out: Path) -> None:
    """Write one page about the runs in these directories, with a warning for each that is left out.

    Raises
    ------
    ValueError
        If none of them holds a run that has ended; then nothing is written.
    """
    runs, problems = [], []
    for path in folders:
        try:
            runs.append(_describe(path))
        except json.JSONDecodeError as error:
            problems.append(f"{path} has a file that is not complete: {error}")
        except ValueError as error:
            problems.append(str(error))
    if not runs:
        raise ValueError("; ".join(problems))
    for problem in problems:
        warnings.warn(f"left out: {problem}", stacklevel=2)
    page = TEMPLATE.render(runs=runs, style=STYLE, size=size, percent=percent)
    write_atomically(out, lambda path: path.write_text(page, encoding="utf-8"))


def _describe(path: Path) -> dict[str, Any]:
    folder = RunFolder.open(path)
    summary = folder.read_summary()
    if summary is None:
        raise ValueError(f"{path} has no summary.json: the run has not ended yet")
    text = (path / "config.yaml").read_text()
    rounds = folder.plain_config()["train"]["rounds"]
    return summary | {"config": text, "picture": _curves(folder.rows(), rounds, summary["target"])}


def _curves(rows: list[dict[str, Any]], last_round: int, target: str) -> str:
    """Draw figures over rounds, and over the target's own steps after them."""
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    axes = figure.subplots(1, len(CURVES))
    for axis, (key, title) in zip(axes, CURVES.items(), strict=True):
        plotted = [
            row
            for row in rows
            if key in row and not row.get("final") and (key != "accuracy" or row["client"] == target)
        ]
        lines = {}
        for client in dict.fromkeys(row["client"] for row in plotted):
            points = [(row["round"] + row.get("step", 0), row[key]) for row in plotted if row["client"] == client]
            lines[literal(client)] = axis.plot(*zip(*points, strict=True), linewidth=1)[0]
        if any("step" in row for row in plotted):
            axis.axvline(last_round, color="grey", linewidth=0.8, linestyle=":")
        if plotted and key == "loss":
            axis.legend(lines.values(), lines.keys(), fontsize=7)  # by name, else it leaves out those with _ in front
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("round, then adaptation step", fontsize=8)
        axis.tick_params(labelsize=8)
    return embedded(as_svg(figure))
