"""`make bench`: rows with bars, tables, and what is slower than before."""

import json
import sys
from types import SimpleNamespace

import pytest

import benchmarks.__main__ as bench
from benchmarks import rows
from benchmarks.rows import Row, as_table, collect, report, slower


@pytest.mark.parametrize(
    ("value", "bar", "better", "is_ok"),
    [
        (1.5, "<= 1.5", "lower", True),
        (1.6, "<= 1.5", "lower", False),
        (4.0, ">= 4", "higher", True),
        (3.9, ">= 4", "higher", False),
        (3.9, "", "", None),
    ],
)
def test_a_bar_says_which_values_are_better_and_whether_it_is_met(value, bar, better, is_ok):
    row = Row("ratio", value, bar=bar)
    assert (row.better, row.is_ok) == (better, is_ok)


def test_shorter_times_are_better_without_a_bar():
    assert Row("time", 3.0, "ms").better == "lower"


def test_reported_rows_are_printed_and_collected(monkeypatch, capsys):
    def main():
        report("a time", 12.345, "ms", "of a round")
        report("a ratio", 0.5, bar=">= 1")

    monkeypatch.setitem(sys.modules, "benchmarks.toy", SimpleNamespace(main=main))
    monkeypatch.setattr(rows, "REPORTED", [Row("of another benchmark", 1.0)])
    assert collect("toy") == [Row("a time", 12.345, "ms", "", "of a round"), Row("a ratio", 0.5, "", ">= 1")]
    first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["a", "time", "12.3", "ms", "of", "a", "round"]
    assert second.split() == ["a", "ratio", "0.5", ">=", "1", "NOT", "MET"]


def test_only_what_is_worse_by_more_than_the_factor_is_slower():
    def lines(**values):
        made = (Row(name, value, "", "<= 9" if name.startswith("low") else ">= 1") for name, value in values.items())
        return [row.as_json() for row in made]

    before = lines(low_a=1.0, low_b=1.0, high_a=6.0, high_b=6.0, gone=1.0)
    now = lines(low_a=1.19, low_b=1.21, high_a=5.1, high_b=4.0, new=1.0)
    assert slower(before, now, 1.2) == [
        "low_b: 1.21 , before 1: 1.21 x worse",
        "high_b: 4 , before 6: 1.50 x worse",
    ]


def test_a_run_writes_results_and_the_table_of_its_page(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- rftca -->\n<!-- end -->\n\nold\n\n<!-- sweep -->\nkept\n<!-- end -->\n")
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(bench, "PAGE", page)
    monkeypatch.setattr(bench, "measure", lambda name: [Row("a time", 30.0, "ms", "<= 20")])
    row = Row("a time", 10.0, "ms", "<= 20").as_json()
    monkeypatch.setattr(bench, "committed", lambda: {"benchmarks": {"rftca": {"rows": [row]}}})
    assert bench.main(["rftca"]) == 0
    result = json.loads((tmp_path / "results.json").read_text())["benchmarks"]["rftca"]
    expected = {"name": "a time", "value": 30.0, "unit": "ms", "bar": "<= 20", "note": ""}
    assert result["rows"] == [{**expected, "better": "lower", "is_ok": False}]
    assert result["machine"].keys() == {"cpu", "cores", "memory_gb"}
    assert {"python", "versions", "commit", "date"} <= result.keys()
    assert "host" not in result
    text = page.read_text()
    assert as_table(result["rows"]) in text
    assert "| a time | 30 | ms | <= 20 | NOT MET |  |" in text
    assert "<!-- end -->\n\nold\n\n<!-- sweep -->\nkept\n<!-- end -->" in text
    assert "slower than in the last commit: rftca: a time: 30 ms, before 10: 3.00 x worse" in capsys.readouterr().out


def test_a_benchmark_that_fails_keeps_its_earlier_results(tmp_path, monkeypatch):
    earlier = {"benchmarks": {"rftca": {"rows": [], "date": "2026-01-01", "machine": {"cores": 2}}}}
    (tmp_path / "results.json").write_text(json.dumps(earlier))
    (tmp_path / "page.md").write_text("")
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(bench, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(bench, "measure", lambda name: None)
    monkeypatch.setattr(bench, "committed", dict)
    assert bench.main(["rftca"]) == 1
    assert json.loads((tmp_path / "results.json").read_text()) == earlier


def test_an_unknown_benchmark_is_refused_in_one_line(capsys):
    assert bench.main(["speed"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"unknown benchmark speed; allowed: {', '.join(bench.BENCHMARKS)}"


def test_every_benchmark_has_a_table_on_the_page():
    text = bench.PAGE.read_text()
    assert all(text.count(f"<!-- {name} -->\n") == 1 for name in bench.BENCHMARKS)
