"""Means over seeds, averages over columns, and ours beside the paper's."""

import json

import pytest

from fedrf.paper.experiments import EXPERIMENTS
from fedrf.paper.jobs import JobStore
from fedrf.paper.outcome import Outcome, Table, collect
from fedrf.paper.plan import Cell, Experiment, Plan, job
from fedrf.paper.published import published
from fedrf.paper.rendering import as_markdown, remarks


def outcome_of(tmp_path, values, errors=(), name="table6-digit-five", **options):
    """Return an outcome whose jobs are finished: values by row, column and seed."""
    store, cells = JobStore(tmp_path), []
    for (row, column, seed), value in values.items():
        item = job("a:b", {"cell": [row, column, seed]}, 1.0)
        cells.append(Cell(row, column, item))
        if value is not None:
            store.folder_of(item).mkdir()
            content = {"values": {"accuracy": value}, "seconds": 2.0}
            (store.folder_of(item) / "result.json").write_text(json.dumps(content))
    experiment = Experiment(name, "title", (), None, has_average=True, **options)
    return collect(experiment, Plan(tuple(cells), ("a note",)), store, True, dict(errors))


def test_values_of_several_seeds_are_averaged_and_in_percent(tmp_path):
    outcome = outcome_of(tmp_path, {("FADA", "→mt", 0): 0.5, ("FADA", "→mt", 1): 0.6, ("FADA", "→mm", 0): 0.7})
    table = outcome.table("accuracy")
    assert table.mean("FADA", "→mt") == pytest.approx(55)
    assert table.spread("FADA", "→mt") == pytest.approx(7.0710678)
    assert table.spread("FADA", "→mm") is None
    assert table.mean("FADA", "Avg") is None  # not as many seeds in each column
    assert outcome.seconds == 6


def test_the_average_is_over_the_same_columns_here_and_in_the_paper(tmp_path):
    outcome = outcome_of(tmp_path, {("FADA", "→mt", 0): 0.9, ("FADA", "→mm", 0): 0.6})
    here, paper = (line for line in outcome.lines(outcome.table("accuracy")) if line.row == "FADA")
    columns = outcome.columns(outcome.table("accuracy"))
    assert columns == ("→mt", "→mm", "→up", "→sv", "→sy", "Avg")
    assert here.entries == ("90.0", "60.0", "–", "–", "–", "75.0")
    # FADA in table VI: 91.4 and 62.5, whose mean is 76.95.
    assert paper.entries[:2] == ("91.4", "62.5")
    assert paper.entries[-1] in ("77", "76.9", "77.0")


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
    loaded = Outcome.load(tmp_path / "out", "table6-digit-five")
    assert loaded == outcome
    assert as_markdown(loaded) == as_markdown(outcome)
    assert Outcome.load(tmp_path / "out", "fig4-interval") is None


def test_columns_that_are_numbers_are_sorted():
    table = Table("accuracy", "%", ("50", "5", "10"), {"FedAvg →mt": {"50": [1.0]}})
    outcome = Outcome("fig4-interval", "", "quick", (table,), (), (), 1, 1.0, "")
    assert outcome.columns(table) == ("5", "10", "20", "50", "100", "200", "400", "800")


def test_tables_of_the_paper_without_a_counterpart_are_shown_and_what_a_figure_plots_is_not():
    outcome = Outcome("table1-communication", "", "quick", (), (), (), 0, 0.0, "")
    assert [table.name for table in outcome.shown] == ["complexity"]
    assert outcome.lines(outcome.shown[0])[0].entries == ("O(K n N)", "no", "no")
    figure = Outcome("fig3-office31", "", "quick", (), (), (), 0, 0.0, "")
    assert "figure" not in [table.name for table in figure.shown]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_everything_is_published_under_the_same_name(name):
    assert published(name).place
