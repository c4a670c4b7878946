"""Means over seeds, averages over columns, and ours beside the paper's."""

import json

import pytest

from fedrf import __version__
from fedrf.paper.experiments import EXPERIMENTS
from fedrf.paper.jobs import JobStore
from fedrf.paper.outcome import Outcome, Table, collect
from fedrf.paper.plan import Cell, Experiment, Plan, job
from fedrf.paper.published import published
from fedrf.paper.rendering import as_markdown, heading, remarks
from fedrf.paper.setting import Setting


def outcome_of(tmp_path, values, errors=(), name="table6-digit-five", **options):
    """Return an outcome whose jobs are finished: values by row, column and seed."""
    store, cells = JobStore(tmp_path), []
    for (row, column, seed), value in values.items():
        item = job("a:b", {"cell": [row, column, seed]}, 1.0)
        cells.append(Cell(row, column, item))
        if value is not None:
            store.folder_of(item).mkdir()
            content = {"version": __version__, "values": {"accuracy": value}, "seconds": 2.0}
            (store.folder_of(item) / "result.json").write_text(json.dumps(content))
    experiment = Experiment(name, "title", None, has_average=True, **options)
    return collect(experiment, Plan(tuple(cells), ("a note",)), store, Setting(True), dict(errors))


def test_values_of_several_seeds_are_averaged_and_in_percent(tmp_path):
    outcome = outcome_of(tmp_path, {("FADA", "→mt", 0): 0.5, ("FADA", "→mt", 1): 0.6, ("FADA", "→mm", 0): 0.7})
    table = outcome.table("accuracy")
    assert table.mean("FADA", "→mt") == pytest.approx(55)
    assert table.spread("FADA", "→mt") == pytest.approx(7.0710678)
    assert table.spread("FADA", "→mm") is None
    assert table.mean("FADA", "Avg of measured") is None  # not as many seeds in each column
    assert outcome.seconds == 6


def test_the_printed_average_stays_and_another_column_compares_the_same_columns(tmp_path):
    outcome = outcome_of(tmp_path, {("FADA", "→mt", 0): 0.9, ("FADA", "→mm", 0): 0.6})
    here, paper = (line for line in outcome.lines(outcome.table("accuracy")) if line.row == "FADA")
    columns = outcome.columns(outcome.table("accuracy"))
    assert columns == ("→mt", "→mm", "→up", "→sv", "→sy", "Avg", "Avg of measured")
    assert here.entries == ("90.0", "60.0", "–", "–", "–", "–", "75.0")
    # FADA in table VI: 91.4 and 62.5, whose mean is 76.95; it prints 73.6 for all five.
    assert paper.entries == ("91.4", "62.5", "91.7", "50.5", "71.8", "73.6", "77")


def test_the_average_of_all_columns_has_the_papers_name(tmp_path):
    values = {("FADA", f"→{name}", 0): 0.5 for name in ("mt", "mm", "up", "sv", "sy")}
    table = outcome_of(tmp_path, values).table("accuracy")
    assert table.columns[-1] == table.average_column == "Avg"
    assert table.mean("FADA", "Avg") == pytest.approx(50)


def test_rows_have_the_papers_order_and_own_rows_follow(tmp_path):
    values = {("fedrf-plus", "→mt", 0): 0.9, ("FADA", "→mt", 0): 0.6, ("Source only", "→mt", 0): 0.3}
    outcome = outcome_of(tmp_path, values)
    lines = outcome.lines(outcome.table("accuracy"))
    assert [line.row for line in lines if line.origin == "here"] == ["Source only", "FADA", "fedrf-plus"]
    assert {line.row for line in lines if line.origin == "paper"} == set(
        published("table6-digit-five").tables["accuracy"].rows
    )


def test_a_cell_that_failed_has_its_reason(tmp_path):
    values = {("FADA", "→mt", 0): 0.5, ("f-DAN", "→mt", 0): None, ("f-DAN", "→mm", 0): None}
    failed = job("a:b", {"cell": ["f-DAN", "→mt", 0]}, 1.0).digest
    outcome = outcome_of(tmp_path, values, {failed: "ValueError: broken"})
    assert outcome.failures == ("f-DAN, →mt: ValueError: broken", "f-DAN, →mm: not run yet")
    assert "No value: f-DAN, →mt: ValueError: broken" in remarks(outcome)


def test_an_outcome_is_the_same_after_saving_and_needs_no_runs(tmp_path):
    outcome = outcome_of(tmp_path, {("FADA", "→mt", 0): 0.5, ("FADA", "→mm", 0): None})
    outcome.save(tmp_path / "out")
    loaded = Outcome.load(tmp_path / "out", "table6-digit-five", "quick")
    assert loaded == outcome
    assert as_markdown(loaded) == as_markdown(outcome)
    assert heading(loaded) == "table6-digit-five: title (quick; 1 of 2 jobs)"
    assert Outcome.load(tmp_path / "out", "table6-digit-five", "full") is None


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"tables": 3}', '{"tables": [], "more": 1}'])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "theorem1.quick.json").write_text(text)
    with pytest.raises(ValueError, match=r"theorem1\.quick\.json cannot be read .*; delete it and run theorem1 again"):
        Outcome.load(tmp_path, "theorem1", "quick")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"values": {}}', '{"version": "0", "values": {}, "seconds": 1}'])
def test_a_damaged_or_old_result_counts_as_not_finished(tmp_path, text):
    item = job("a:b", {}, 1.0)
    store = JobStore(tmp_path)
    store.folder_of(item).mkdir()
    (store.folder_of(item) / "result.json").write_text(text)
    assert store.result(item) is None


def test_columns_that_are_numbers_are_sorted():
    table = Table("accuracy", "%", ("50", "5", "10"), {"FedAvg →mt": {"50": [1.0]}})
    outcome = Outcome("fig4-interval", "", "quick", (table,), (), (), 1, 1, 1.0, "")
    assert outcome.columns(table) == ("5", "10", "20", "50", "100", "200", "400", "800")


def test_tables_of_the_paper_without_a_counterpart_are_shown_and_what_a_figure_plots_is_not():
    outcome = Outcome("table1-communication", "", "quick", (), (), (), 0, 0, 0.0, "")
    assert [table.name for table in outcome.shown] == ["complexity"]
    assert outcome.lines(outcome.shown[0])[0].entries == ("O(K n N)", "no", "no")
    figure = Outcome("fig3-office31", "", "quick", (), (), (), 0, 0, 0.0, "")
    assert "figure" not in [table.name for table in figure.shown]


def test_rows_that_are_chosen_with_target_labels_say_oracle(tmp_path):
    store, item = JobStore(tmp_path), job("a:b", {}, 1.0)
    store.folder_of(item).mkdir()
    content = {"version": __version__, "values": {"oracle": 0.9}, "seconds": 1.0}
    (store.folder_of(item) / "result.json").write_text(json.dumps(content))
    plan = Plan((Cell("TCA", "A→D", item, "oracle"),))
    outcome = collect(Experiment("table4-office31", "", None), plan, store, Setting(False), {})
    line = next(line for line in outcome.lines(outcome.table("accuracy")) if line.row == "TCA")
    assert line.origin == "here, oracle"


def test_json_has_the_papers_numbers_and_the_call(tmp_path):
    content = outcome_of(tmp_path, {("FADA", "→mt", 0): 0.9}).as_json()
    assert content["published"]["accuracy"]["rows"]["FADA"]["→mt"] == 91.4
    assert content["command"] == "fedrf paper run table6-digit-five --quick"
    assert "Table VI" in content["place"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_everything_is_published_under_the_same_name(name):
    assert published(name).place
