"""What tables and pictures say about runs whose figures are known beforehand."""

import csv
import io
import json
import re

import pytest
from rich.console import Console

from fedrf.comparison.outcome import Comparison, Outcome
from fedrf.comparison.pictures import draw, write_pictures
from fedrf.comparison.plan import make_plan
from fedrf.comparison.tables import accuracy_grid, as_latex, as_markdown, print_tables, remarks, write_tables


def filled(folder, figures, scores=lambda *_: {}, **options):
    """Return a comparison in which (variant, target, seed) has come to `figures`; 'failed' and None are no figures."""
    plan = make_plan("digits", **options)
    comparison = Comparison.open(plan, folder)
    for cell in plan.cells:
        final = figures(cell.variant.name, cell.task.target, cell.seed)
        path = folder / cell.folder
        if final == "failed":
            comparison.runs[cell.digest] = Outcome(path, "failed", error="OSError: no room")
        elif final is not None:
            summary = {
                "target_accuracy": {"final": final, "selected": final - 0.1, "oracle": final + 0.1},
                "communication": {"bytes_total": 2_000_000},
                "seconds": {"total": 4.0},
                "rounds": 5,
                "scores": scores(cell.variant.name, cell.seed),
            }
            comparison.runs[cell.digest] = Outcome(path, "finished", summary)
    return comparison


def rows(grid):
    return {line[0].text: [entry.text for entry in line[1:]] for line in grid.rows}


def best(grid):
    return {line[0].text: [entry.best for entry in line[1:]] for line in grid.rows}


TWO = {"methods": ["source-only", "fedrf-plus"], "targets": ["street", "rendered"]}
KNOWN = {
    ("source-only", "street"): (0.5, 0.6, 0.7),
    ("source-only", "rendered"): (0.8, 0.8, 0.8),
    ("fedrf-plus", "street"): (0.9, 0.9, 0.9),
    ("fedrf-plus", "rendered"): (0.7, 0.8, 0.6),
}


@pytest.fixture
def comparison(tmp_path):
    return filled(tmp_path, lambda variant, target, seed: KNOWN[variant, target][seed], **TWO)


def test_means_and_deviations_worked_by_hand(comparison):
    grid = accuracy_grid(comparison, "final")
    assert grid.columns == ["", "→ street", "→ rendered", "mean", "sent a run", "seconds a run"]
    # over seeds: 65, 70, 75 and 80, 85, 75
    assert rows(grid) == {
        "source-only": ["60.0 ± 10.0", "80.0 ± 0.0", "70.0 ± 5.0", "2.0 MB", "4.0"],
        "fedrf-plus": ["90.0 ± 0.0", "70.0 ± 10.0", "80.0 ± 5.0", "2.0 MB", "4.0"],
    }
    assert best(grid) == {
        "source-only": [False, True, False, False, False],
        "fedrf-plus": [True, False, True, False, False],
    }
    assert rows(accuracy_grid(comparison, "selected"))["source-only"] == ["50.0 ± 10.0", "70.0 ± 0.0", "60.0 ± 5.0"]


def test_one_seed_has_no_deviation_one_task_no_mean_and_equals_are_both_best(tmp_path):
    grid = accuracy_grid(filled(tmp_path, lambda *_: 0.5, methods=TWO["methods"], seeds=[0]), "final")
    assert rows(grid)["fedrf-plus"][0] == "50.0"
    assert "mean" not in grid.columns
    assert best(grid) == {"source-only": [True, False, False], "fedrf-plus": [True, False, False]}


def test_oracles_are_called_so_everywhere(comparison):
    for text in (as_markdown(comparison), as_latex(comparison)):
        tables = re.split(r"\n\n(?=\*\*)|\\begin\{table\}", text)
        (oracle,) = (table for table in tables if "100.0" in table)
        assert "Oracle (chosen with target labels)" in oracle


def test_what_failed_or_is_not_there_is_said_and_is_never_best(tmp_path):
    def figures(variant, target, seed):
        if variant == "fedrf-plus":
            return "failed" if target == "street" else 0.99 if seed == 0 else None
        return 0.5

    comparison = filled(tmp_path, figures, **TWO)
    grid = accuracy_grid(comparison, "final")
    assert rows(grid)["fedrf-plus"][:3] == ["failed", "99.0 (1 of 3 runs)", "99.0 (1 of 6 runs)"]
    assert best(grid)["fedrf-plus"][:3] == [False] * 3
    assert best(grid)["source-only"][:3] == [False] * 3, "there is nothing whole to be better than"
    assert "Failed: fedrf-plus on → street, seed 2: OSError: no room." in remarks(comparison)
    assert comparison.as_json()["counts"] == {"finished": 7, "failed": 3, "unfinished": 2}


def test_nothing_has_been_run_yet(tmp_path):
    comparison = filled(tmp_path, lambda *_: None, **TWO)
    assert rows(accuracy_grid(comparison, "final"))["source-only"] == ["–"] * 5
    write_tables(comparison)
    assert json.loads((tmp_path / "comparison.json").read_text())["significance"]["over_tasks_and_seeds"] == []


def test_significance_is_against_the_first_variant(comparison):
    (row,) = comparison.over_runs()
    assert (row.variant, row.pairs, row.wins, row.losses, row.ties) == ("fedrf-plus", 6, 3, 2, 1)
    assert row.mean == pytest.approx(0.1)
    assert comparison.over_tasks() == []
    assert "Against source-only, in points: pairs of runs" in as_markdown(comparison)
    assert any("not independent" in one and "6 tasks or more" in one for one in remarks(comparison))
    assert any("with 5 pairs that differ is 0.062." in one for one in remarks(comparison))


def test_six_tasks_are_tested_by_their_means_too(tmp_path):
    comparison = filled(
        tmp_path,
        lambda variant, target, seed: 0.5 + 0.1 * (variant == "fedrf-plus"),
        methods=TWO["methods"],
        targets=["street", "rendered"],
        sources="each",
    )
    (by_task,), (by_run,) = comparison.over_tasks(), comparison.over_runs()
    assert (by_task.pairs, by_task.p) == (6, pytest.approx(2 / 64))
    assert (by_run.pairs, by_run.p) == (18, pytest.approx(2 / 2**18))
    assert "pairs of means of a task over seeds" in as_markdown(comparison)
    assert any("tasks that share domains" in one for one in remarks(comparison))


def test_worse_than_no_alignment_is_listed(comparison, tmp_path):
    assert "fedrf-plus: → rendered −10.0." in remarks(comparison)
    fine = filled(tmp_path, lambda variant, *_: 0.5 if variant == "source-only" else 0.492, **TWO)
    assert "No variant is more than one point worse than source-only on any task." in remarks(fine)
    without = filled(tmp_path, lambda *_: 0.5, methods=["fedavg", "fedrf-plus"])
    assert without.below_baseline() is None
    assert not any("source-only" in one for one in remarks(without))


def test_only_runs_with_the_same_seed_are_held_against_no_alignment(tmp_path):
    floor = {0: 0.5, 1: 0.7, 2: 0.7}

    def figures(variant, target, seed):
        return floor[seed] if variant == "source-only" else 0.52 if seed == 0 else None

    comparison = filled(tmp_path, figures, **TWO)
    assert comparison.below_baseline() == []
    assert any("on any task, as far as runs are there." in one for one in remarks(comparison))


def test_tasks_with_one_source_and_with_all_have_means_of_their_own(tmp_path):
    comparison = filled(
        tmp_path, lambda *_: 0.5, methods=["fedrf-plus"], targets=["street", "rendered"], sources="both"
    )
    heads = accuracy_grid(comparison, "selected").columns
    assert heads[-2:] == ["mean, one source", "mean, all sources"]
    assert len(heads) == 1 + 2 * (3 + 1) + 2


def test_votes_are_not_chosen_by_how_sure_they_are(tmp_path):
    comparison = filled(
        tmp_path,
        lambda variant, *_: 0.1 if variant == "source-only" else 0.9,
        lambda variant, _: {"entropy": 0.0 if variant == "source-only" else 1.0},
        ablate=True,
        methods=["source-only"],
        targets=["street"],
    )
    assert set(comparison.choices()["by entropy"].values()) == {0.9}


def test_every_cell_has_a_line_with_everything(comparison, tmp_path):
    write_tables(comparison)
    with (tmp_path / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 12
    assert lines[0].keys() >= {"task", "variant", "seed", "final", "selected", "oracle", "bytes_total", "seconds"}
    last = lines[-1]
    assert (last["variant"], last["target"], last["seed"], last["status"]) == (
        "fedrf-plus",
        "rendered",
        "2",
        "finished",
    )
    assert float(last["final"]) == 0.6
    assert last["folder"].startswith("runs/handwritten+textured+street-to-rendered/fedrf-plus/seed-2-")
    assert json.loads((tmp_path / "comparison.json").read_text()) == comparison.as_json()


def test_latex_has_as_many_fields_as_columns_and_escapes_what_it_must(tmp_path):
    comparison = filled(tmp_path, lambda *_: 0.5, vary=["model.cache_precision=float16,float32"], targets=["street"])
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


def test_a_terminal_of_any_width_shows_whole_figures(comparison):
    console = Console(file=io.StringIO(), width=30, highlight=False)
    print_tables(comparison, console)
    line = next(line for line in console.file.getvalue().splitlines() if line.startswith("source-only"))
    assert re.split(r"\s{2,}", line)[1:] == ["60.0 ± 10.0", "80.0 ± 0.0", "70.0 ± 5.0", "2.0 MB", "4.0"]


def test_pictures_of_values(tmp_path):
    vary = ["align.gamma=0.0005,0.05,0.5", "adapt.when=last,never", "federation.classifier_interval=1,20"]
    options = {"vary": vary, "targets": ["street", "rendered"], "methods": ["fedrf-plus", "fedavg"]}
    comparison = filled(tmp_path, lambda variant, target, seed: 0.5 + 0.1 * seed, **options)
    assert write_pictures(comparison) == ["align.gamma.svg", "adapt.when.svg", "federation.classifier_interval.svg"]
    drawn = (tmp_path / "align.gamma.svg").read_text()
    assert drawn == draw(comparison, "align.gamma")
    assert all(f"<!-- {text} -->" in drawn for text in ("0.0005", "0.5", "fedavg", "fedrf-plus", "→ street"))
    empty = filled(tmp_path, lambda *_: None, **options)
    assert "<svg" in draw(empty, "adapt.when")


@pytest.mark.parametrize(
    ("values", "scale"), [("0.001,0.1", "log"), ("0.1,0.2", "linear"), ("0,0.001,0.1", "symlog"), ("-1,100", "linear")]
)
def test_values_that_span_decades_get_a_logarithmic_axis(values, scale):
    from matplotlib.figure import Figure

    from fedrf.comparison.pictures import _places

    axis = Figure().subplots()
    numbers = [float(value) for value in values.split(",")]
    assert list(_places(axis, numbers).values()) == numbers
    assert axis.get_xscale() == scale


SCORED = {
    # variant: accuracy, entropy (less is better), and density, for seeds 0 and 1
    "align.gamma=0.1": [(0.5, 1.0, 3.0), (0.6, 2.0, 1.0)],
    "align.gamma=1": [(0.7, 0.5, 2.0), (0.4, 1.0, None)],
    "align.gamma=10": [(0.9, 0.9, 1.0), (0.8, 1.5, 4.0)],
}


def scored(folder, **options):
    def scores(variant, seed):
        _, entropy, density = SCORED[variant][seed]
        return {"entropy": entropy, "density": density}

    options = {"vary": ["align.gamma=0.1,1,10"], "targets": ["street"], "seeds": [0, 1]} | options
    return filled(folder, lambda variant, _, seed: SCORED[variant][seed][0], scores, **options)


def test_what_each_score_would_choose_beside_the_oracle(tmp_path):
    comparison = scored(tmp_path)
    assert {name: list(found.values()) for name, found in comparison.choices().items()} == {
        "by density": [0.5, 0.8],
        "by entropy": [0.7, 0.4],
        "always align.gamma=0.1": [0.5, 0.6],
        "oracle (chosen with target labels)": [0.9, 0.8],
    }
    text = as_markdown(comparison)
    assert "| by density | 65.0 ± 21.2 |" in text
    assert "| oracle (chosen with target labels) | 85.0 ± 7.1 |" in text
    assert comparison.as_json()["choices"]["by entropy"]["mean"]["value"] == pytest.approx(0.55)


def test_no_choice_between_methods_nor_where_a_variant_is_not_there_yet(tmp_path):
    comparison = scored(tmp_path)
    missing = comparison.plan.cells[-1]
    comparison.runs[missing.digest] = Outcome(tmp_path / missing.folder)
    assert {len(found) for found in comparison.choices().values()} == {1}
    methods = filled(tmp_path, lambda *_: 0.5, lambda *_: {"entropy": 1.0}, **TWO)
    assert methods.choices() == {}
