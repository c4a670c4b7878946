"""Tables as Markdown, as LaTeX, on a terminal and as files, for results that are known in advance."""

import csv
import io
import json
import re

from rich.console import Console

from fedrf.comparison.export import as_json, write_tables
from fedrf.comparison.rendering import as_latex, as_markdown, print_tables
from fedrf.comparison.tables import accuracy_grid
from tests.comparison.conftest import TWO_METHODS, make_comparison


def test_oracles_are_labelled_as_such_everywhere(comparison):
    for text in (as_markdown(comparison), as_latex(comparison)):
        tables = re.split(r"\n\n(?=\*\*)|\\begin\{table\}", text)
        (oracle,) = (table for table in tables if "100.0" in table)
        assert "Oracle (chosen with target labels)" in oracle


def test_tables_are_written_before_the_first_run(tmp_path):
    comparison = make_comparison(tmp_path, lambda *_: None, **TWO_METHODS)
    (row, _) = accuracy_grid(comparison, "final").rows
    assert [entry.text for entry in row] == ["source-only", *["–"] * 5]
    write_tables(comparison)
    assert json.loads((tmp_path / "comparison.json").read_text())["significance"]["over_tasks_and_seeds"] == []


def test_table_csv_has_a_complete_row_for_every_cell(comparison, tmp_path):
    write_tables(comparison)
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert rows[0].keys() >= {"task", "variant", "seed", "final", "selected", "oracle", "bytes_total", "seconds"}
    last = rows[-1]
    assert (last["variant"], last["target"], last["seed"], last["status"]) == (
        "fedrf-plus",
        "rendered",
        "2",
        "finished",
    )
    assert float(last["final"]) == 0.6
    assert last["folder"].startswith("runs/handwritten+textured+street-to-rendered/fedrf-plus/seed-2-")
    assert json.loads((tmp_path / "comparison.json").read_text()) == as_json(comparison)


def test_latex_rows_have_a_field_for_each_column_and_special_characters_are_escaped(tmp_path):
    comparison = make_comparison(
        tmp_path, lambda *_: 0.5, vary=["model.cache_precision=float16,float32"], targets=["street"]
    )
    text = as_latex(comparison)
    for layout, inner in re.findall(r"\\begin\{tabular\}\{(l?r*)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        lines = [line for line in inner.splitlines() if line.endswith(r"\\")]
        assert len(lines) >= 2
        assert all(line.replace(r"\&", "").count("&") == len(layout) - 1 for line in lines)
    assert r"model.cache\_precision=float16" in text
    assert r"50.0 $\pm$ 0.0" in text
    assert not set("→±−–_%") & set(re.sub(r"\\[_%]", "", text.partition("\n")[2]))
    for name in ("table", "tabular"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 4


def test_numbers_are_not_cut_off_on_a_narrow_terminal(comparison):
    console = Console(file=io.StringIO(), width=30, highlight=False)
    print_tables(comparison, console)
    line = next(line for line in console.file.getvalue().splitlines() if line.startswith("source-only"))
    assert re.split(r"\s{2,}", line)[1:] == ["60.0 ± 10.0", "80.0 ± 0.0", "70.0 ± 5.0", "2.0 MB", "4.0"]
