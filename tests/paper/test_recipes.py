"""The recipes: names that match the paper's, the paper's values in full, and what is used where data are missing."""

import shutil

import pytest

from fedrf.config.schema import Config
from fedrf.paper.experiments import EXPERIMENTS, find
from fedrf.paper.published import published
from fedrf.paper.setting import DIGIT_FIVE, EMBEDDED, Setting
from tests.data import layouts

NEED_OFFICE = ("fig3-", "fig6-", "kernels-", "table4-", "table5-", "table9-", "voting-office")
ON_DIGITS = [name for name in EXPERIMENTS if not name.startswith(NEED_OFFICE)]
WITHOUT_DATA = ("theorem1", "table1-communication", "table2-message-size")
DATASETS = ("digit-five", "office31", "office31-decaf6", "visda-c")
DATASETS += ("office-caltech10", "office-caltech10-decaf6", "office-caltech10-surf")


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("FEDRF_DATA", raising=False)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Return a folder with small versions of all data sets of the paper."""
    root = tmp_path_factory.mktemp("data")
    for name in DATASETS:
        layouts.LAYOUTS[name](root)
    return str(root)


def config_of(cell):
    return Config.model_validate(cell.job.settings)


def test_the_issue_of_every_table_and_figure_has_a_recipe():
    assert set(EXPERIMENTS) == {
        *("fig3-office-caltech", "fig3-office31", "table1-communication", "table2-message-size", "table3-drops"),
        *("fig4-interval", "fig7-one-shot", "table4-office31", "table5-office-caltech", "table6-digit-five"),
        *("table7-visda", "table8-ablation-digits", "table9-ablation-office", "fig5-heterogeneity", "fig6-gamma"),
        *("kernels-office-caltech", "kernels-office31", "voting-office-caltech", "voting-digit-five"),
        *("orders-digit-five", "theorem1"),
    }


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_row_and_column_of_the_paper_is_measured(name, quick, everything):
    """With all data, every entry of the paper has one of ours, but for what a table cites from other papers."""
    plan = find(name).recipe(Setting(quick, everything))
    measured = {(cell.table, cell.row, cell.column) for cell in plan.cells}
    cited = {"voting-office-caltech", "voting-digit-five"}  # their baselines are those of tables V and VI
    for table, content in published(name).tables.items():
        if table in ("figure", "complexity"):
            continue
        rows = [row for row in content.rows if name not in cited or row.startswith("FedRF-TCA")]
        for row in rows:
            for column, entry in content.rows[row].items():
                if entry is None or column == "Avg" or (name == "fig6-gamma" and quick):
                    continue
                assert (table, row, column) in measured, f"{name}: {row}, {column} is not measured"


def test_in_full_the_settings_are_the_papers(everything):
    setting = Setting(False, everything)
    for cell in find("table3-drops").recipe(setting).cells:
        config = config_of(cell)
        assert config.federation.classifier_interval == 50
        assert config.federation.participants == "random"
        assert (config.train.rounds, config.model.num_features, config.model.extractor) == (1600, 1000, "resnet50")
        assert len(config.data.sources) == 4
    intervals = {
        cell.column: config_of(cell).federation.classifier_interval
        for cell in find("fig7-one-shot").recipe(setting).cells
    }
    assert intervals == {str(number): number for number in (10, 20, 50, 100, 200, 400, 800)} | {"1600": "last"}
    senders = {cell.column: config_of(cell).federation for cell in find("table3-drops").recipe(setting).cells}
    assert [
        (senders[name].embeddings_from, senders[name].aligners_from, senders[name].classifiers_from)
        for name in ("(I)", "(II)", "(III)")
    ] == [
        ("participants", "participants", "participants"),
        ("participants", "participants", "subset"),
        ("participants", "subset", "subset"),
    ]


def test_in_full_missing_data_are_named_and_quick_uses_what_is_there(tmp_path):
    layouts.write_digit_five(tmp_path)
    for gone in ("SVHN", "SYNTH"):
        shutil.rmtree(tmp_path / "Digit-Five" / gone)
    with pytest.raises(ValueError, match=r"needs svhn, synthetic of digit-five .*; --quick uses what is there"):
        find("table6-digit-five").recipe(Setting(False, str(tmp_path)))
    plan = find("table6-digit-five").recipe(Setting(True, str(tmp_path)))
    assert {cell.column for cell in plan.cells} == {"→mt", "→mm", "→up"}
    assert any("svhn (sv), synthetic (sy)" in note for note in plan.notes)


@pytest.mark.parametrize("name", ON_DIGITS)
def test_quick_works_without_any_data(name):
    plan = find(name).recipe(Setting(True))
    assert plan.cells
    if name not in WITHOUT_DATA:
        assert any("take its place" in note for note in plan.notes)
        assert plan.stand_in == "embedded digits"


def test_the_embedded_digits_stand_for_domains_of_the_paper():
    assert set(EMBEDDED) < set(DIGIT_FIVE)


@pytest.mark.parametrize("name", ["table4-office31", "fig3-office-caltech", "table9-ablation-office"])
def test_quick_names_what_it_needs(name):
    with pytest.raises(ValueError, match=r"needs amazon.* of office"):
        find(name).recipe(Setting(True))


def test_tables_share_their_jobs():
    """Table VIII and figure 5 contain runs of table VI."""
    setting = Setting(True)
    jobs = {name: {cell.job.digest for cell in find(name).recipe(setting).cells} for name in ON_DIGITS}
    assert jobs["table8-ablation-digits"] & jobs["table6-digit-five"]
    assert jobs["fig4-interval"] < jobs["fig7-one-shot"]
    assert jobs["voting-digit-five"] & jobs["orders-digit-five"]


def test_given_seeds_replace_those_of_the_recipes():
    plan = find("table3-drops").recipe(Setting(True, None, (3, 4)))
    assert {config_of(cell).seed for cell in plan.cells} == {3, 4}


def test_names_can_be_shortened_and_a_wrong_one_is_one_line_with_all_names():
    assert find("table3").name == "table3-drops"
    assert find("fig3-office31").name == "fig3-office31"
    with pytest.raises(ValueError, match=r"'table10' is no table or figure of the paper; allowed: all, theorem1, "):
        find("table10")
    with pytest.raises(ValueError, match=r"'fig3' is the beginning of fig3-office-caltech, fig3-office31; allowed: "):
        find("fig3")


def test_methods_that_are_compared_one_to_one_differ_in_the_method_alone():
    """The ablations compare classifiers, losses and intervals that are the same."""
    for name in ("table8-ablation-digits", "fig5-heterogeneity", "fig4-interval"):
        configs = [
            config_of(cell)
            for cell in find(name).recipe(Setting(True)).cells
            if cell.column in ("→mt", "MNIST-M", "50")
        ]
        assert len({config.method for config in configs}) > 1
        assert {(config.model.classifier, config.train.label_smoothing) for config in configs} == {("mlp", 0.0)}
        assert len({config.federation.classifier_interval for config in configs}) == 1
        assert {config.federation.aggregation for config in configs} == {"mean"}


def test_in_full_what_is_chosen_with_target_labels_is_marked(everything):
    plan = find("table4-office31").recipe(Setting(False, everything))
    marked = {cell.row for cell in plan.cells if cell.value == "oracle"}
    assert marked == {"TCA", "RF-TCA (N=500)", "RF-TCA (N=1000)"}
    assert any("chosen with target labels (oracle)" in note for note in plan.notes)
    assert not [
        cell for cell in find("table4-office31").recipe(Setting(True, everything)).cells if cell.value == "oracle"
    ]
