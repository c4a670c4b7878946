"""Variants of a comparison: methods, ablations and series of values."""

import pytest

from fedrf.comparison.plan import plan_comparison
from fedrf.comparison.variants import DEFAULT
from fedrf.config.registry import METHODS


def change_ingredients(monkeypatch, settings):
    """Replace what ablations of fedrf-plus switch off."""
    monkeypatch.setattr(type(METHODS.find("fedrf-plus")), "ingredients", settings)


def test_default_methods_and_all_methods():
    plan = plan_comparison("digits")
    assert [variant.name for variant in plan.variants] == [
        "fedrf-oneshot",
        "fedrf-plus",
        "fedrf-tca",
        "source-only",
        "fedavg",
    ]
    assert plan.variants[0].name == DEFAULT
    assert [variant.name for variant in plan_comparison("digits", methods=["all"]).variants] == METHODS.names()
    assert [task.label for task in plan.tasks] == ["→ handwritten"]
    assert plan.seeds == (0, 1, 2)


def test_ablations_follow_from_the_settings_of_the_methods(monkeypatch):
    change_ingredients(monkeypatch, {"align.step": "gradient", "train.lr": 0.1})
    plan = plan_comparison("digits", ["train.lr=0.2"], ablate=True, methods=["fedrf-plus", "source-only"], seeds=[0])
    assert [variant.name for variant in plan.variants] == [
        "fedrf-plus",
        "without align.step=proximal",
        "without train.lr=0.2",
        "all off",
        "source-only",
    ]
    settings = [(cell.config.method, cell.config.align.step, cell.config.train.lr) for cell in plan.cells]
    assert settings == [
        ("fedrf-plus", "proximal", 0.2),
        ("fedrf-plus", "gradient", 0.2),
        ("fedrf-plus", "proximal", 0.1),
        ("fedrf-plus", "gradient", 0.1),
        ("source-only", "proximal", 0.2),
    ]


def test_every_ingredient_can_be_removed():
    methods = ["fedrf-plus"]
    plan = plan_comparison("digits", ablate=True, methods=methods, seeds=[0])
    # Only digits from files use consistency between warped images, and they use no pseudo-labels. Both methods average
    # extractors, and smooth no labels.
    common = {"adapt.consistency", "model.sharing", "train.label_smoothing"}
    assert len(plan.variants) == len(METHODS.find("fedrf-tca").settings.keys() - common) + 2
    from_files = plan_comparison("digit-four", ablate=True, methods=methods, seeds=[0], require_files=False)
    names = [variant.name for variant in from_files.variants]
    assert "without adapt.consistency=1" in names
    assert not any("adapt.pseudo_labels" in name for name in names)
    bare, paper = plan.cells[-1].config, plan_comparison("digits", methods=["fedrf-tca"], seeds=[0]).cells[0].config
    assert bare.model_copy(update={"method": paper.method}) == paper


def test_ingredients_of_the_default_method():
    plan = plan_comparison("digits", ablate=True, methods=["source-only"], seeds=[0])
    assert [variant.name for variant in plan.variants] == [
        "fedrf-oneshot",
        "without align.statistics=lowrank",
        "without align.source_weights=distance",
        "without adapt.when=last",
        "without adapt.pseudo_labels=0.3",
        "without adapt.views=all",
        "without adapt.shares=estimated",
        "all off",
        "source-only",
    ]
    assert {cell.config.method for cell in plan.cells[:-1]} == {"fedrf-oneshot"}


def test_an_ingredient_that_is_already_off_is_not_ablated():
    plan = plan_comparison("digits", ["adapt.when=never"], ablate=True)
    assert not any("adapt.when" in variant.name for variant in plan.variants)


def test_ingredients_that_require_each_other_are_removed_together(monkeypatch):
    change_ingredients(monkeypatch, {"federation.prediction": "vote", "adapt.when": "never"})
    names = [variant.name for variant in plan_comparison("digits", ablate=True, methods=["fedrf-plus"]).variants]
    assert names[1:3] == [
        "without federation.prediction=average and adapt.when=last",
        "without adapt.when=last",
    ]
    change_ingredients(monkeypatch, {"federation.prediction": "vote"})
    with pytest.raises(
        ValueError, match=r"^--ablate: federation.prediction cannot be removed from fedrf-plus: .*adapt.when"
    ):
        plan_comparison("digits", ablate=True, methods=["fedrf-plus"])


def test_one_value_of_one_key_at_a_time():
    vary = ["align.gamma=5e-3,0.05,0.050", "federation.delays={street: 1, rendered: 1},{}"]
    plan = plan_comparison("digits", vary=vary)
    assert [variant.name for variant in plan.variants] == [
        "align.gamma=0.005",
        "align.gamma=0.05",
        "federation.delays={'street': 1.0, 'rendered': 1.0}",
        "federation.delays={}",
    ]
    assert [variant.varied for variant in plan.variants[:2]] == [("align.gamma", 0.005), ("align.gamma", 0.05)]
    assert plan.cells[0].digest == plan.cells[3].digest  # both are the unchanged recipe
    assert plan.varied_keys == ("align.gamma", "federation.delays")
    both = plan_comparison("digits", vary=["train.lr=1,2"], methods=["fedavg", "fedrf-tca"])
    assert [variant.name for variant in both.variants][::3] == ["fedavg train.lr=1", "fedrf-tca train.lr=2"]


def test_a_complete_file_replaces_the_settings_of_a_method_and_a_note_says_so(tmp_path):
    plan_comparison("digits", methods=["fedrf-plus"]).cells[0].config.save(tmp_path / "best.yaml")
    plan = plan_comparison(str(tmp_path / "best.yaml"), methods=["source-only"])
    assert "source-only has adapt.when=last from the recipe or call instead of its own never" in plan.notes
