"""paper.html: all outcomes of a folder on one self-contained page."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment

from fedrf import __version__
from fedrf.experiment.drawing import embedded
from fedrf.files import write_atomically
from fedrf.paper.experiments import EXPERIMENTS
from fedrf.paper.outcome import MODES, Outcome
from fedrf.paper.published import published
from fedrf.paper.rendering import mode_of, remarks

STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --faint: #666; --line: #d5d5d5; --back: #fff; --box: #f5f5f3 }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --faint: #a0a0a0; --line: #444; --back: #161616; --box: #222 }
  figure svg { background: #fff; border-radius: 4px }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 72em;
  margin: 0 auto; padding: 1.5em }
h1 { font-size: 1.6em } h2 { font-size: 1.25em; margin-top: 2.6em; border-top: 1px solid var(--line); padding-top: 1em }
a { color: inherit } .faint, td.paper, th.paper { color: var(--faint) } code { font-size: .9em }
.scroll { overflow-x: auto; margin: 1em 0 } table { border-collapse: collapse; font-size: .9em }
caption { text-align: left; font-weight: 600; padding-bottom: .4em }
th, td { padding: .2em .7em; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left; padding-left: 0 } thead th { border-bottom: 1px solid var(--text) }
tr.first td { border-top: 1px solid var(--line) } figure { margin: 1em 0; overflow-x: auto }
figure svg { max-width: 100%; min-width: 34em; height: auto }
.mode { background: var(--box); border-radius: 4px; padding: .1em .5em; font-size: .8em; font-weight: normal }
ul.remarks { background: var(--box); border-radius: 6px; padding: .8em .8em .8em 2em; font-size: .9em }
@media print { body { font-size: 11px } h2 { break-before: page } .scroll { overflow: visible } }
"""

TEMPLATE = Environment(autoescape=True, trim_blocks=True).from_string("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The paper's tables and figures</title><style>{{ style|safe }}</style></head><body>
<h1>The paper's tables and figures</h1>
<p><cite>Robust and Communication-Efficient Federated Domain Adaptation via Random Features</cite>, Feng et al.
(<a href="https://arxiv.org/abs/2311.04686">arXiv:2311.04686</a>), repeated with fedrf {{ version }}.
“here” is what this machine measured, “paper” what is printed. “quick” experiments are scaled down and use stand-ins for
missing data; the notes below each table say how.</p>
<div class="scroll"><table><thead><tr><th>name</th><th style="text-align:left">what</th>
<th style="text-align:left">in the paper</th><th>state</th></tr></thead><tbody>
{% for entry in entries %}<tr class="first"><td>{% if entry.outcome %}<a href="#{{ entry.anchor }}">{{ entry.name }}</a>
{% else %}{{ entry.name }}{% endif %}</td><td style="text-align:left;white-space:normal">{{ entry.title }}</td>
<td class="faint" style="text-align:left;white-space:normal">{{ entry.place }}</td>
<td>{{ entry.state }}</td></tr>{% endfor %}</tbody></table></div>
{% for entry in entries if entry.outcome %}{% set outcome = entry.outcome %}
<section aria-labelledby="{{ entry.anchor }}">
<h2 id="{{ entry.anchor }}">{{ outcome.title }} <code>{{ outcome.name }}</code>
<span class="mode">{{ entry.state }}</span></h2>
<p class="faint">{{ entry.place }} · <code>{{ outcome.command }}</code></p>
{% if entry.figure %}<figure role="img" aria-label="{{ outcome.title }}">{{ entry.figure|safe }}</figure>{% endif %}
{% for table in entry.tables %}<div class="scroll" tabindex="0"><table><caption>{{ table.name }}</caption><thead><tr>
<th></th><th></th>{% for column in table.columns %}<th>{{ column }}</th>{% endfor %}</tr></thead><tbody>
{% for line in table.lines %}{% set again = not loop.first and table.lines[loop.index0 - 1].row == line.row %}
<tr{% if not again %} class="first"{% endif %}><td>{% if not again %}{{ line.row }}{% endif %}</td>
<td class="{{ line.origin }}" style="text-align:left">{{ line.origin }}</td>
{% for value in line.entries %}<td class="{{ line.origin }}">{{ value }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>{% endfor %}
<ul class="remarks">{% for text in entry.remarks %}<li>{{ text }}</li>{% endfor %}</ul></section>
{% endfor %}</body></html>
""")


def write_page(folder: Path) -> Path:
    """Write paper.html with all outcomes in the folder; return its path."""
    entries = [entry for name in EXPERIMENTS for entry in _entries(folder, name)]
    page = TEMPLATE.render(entries=entries, style=STYLE, version=__version__)
    path = folder / "paper.html"
    write_atomically(path, lambda draft: draft.write_text(page, encoding="utf-8"))
    return path


def _entries(folder: Path, name: str) -> list[dict[str, object]]:
    """Return an entry for each mode in which an experiment has been run, or one that says that it has not."""
    common: dict[str, object] = {"name": name, "title": EXPERIMENTS[name].title, "place": published(name).place}
    entries = []
    for mode in MODES:
        try:
            outcome = Outcome.load(folder, name, mode)
        except ValueError as error:
            entries.append(common | {"outcome": None, "state": str(error)})
            continue
        if outcome is not None:
            entries.append(common | _shown(outcome, folder))
    return entries or [common | {"outcome": None, "state": "not run"}]


def _shown(outcome: Outcome, folder: Path) -> dict[str, object]:
    figure = folder / f"{outcome.stem}.svg"
    tables = [
        {
            "name": table.heading,
            "columns": outcome.columns(table),
            "lines": outcome.lines(table),
        }
        for table in outcome.shown
    ]
    return {
        "outcome": outcome,
        "anchor": outcome.stem,
        "state": mode_of(outcome),
        "figure": embedded(figure.read_text(encoding="utf-8")) if figure.exists() else "",
        "tables": tables,
        "remarks": remarks(outcome),
    }
