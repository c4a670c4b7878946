"""Which runs a comparison has, and what is refused before any of them."""

import re

import numpy as np
import pytest

from fedrf.comparison.plan import make_plan
from fedrf.config.presets import PRESETS


def tasks(plan):
    return [(task.sources, task.target) for task in plan.tasks]


def test_methods_tasks_and_seeds_with_the_first_seed_of_everything_first():
    plan = make_plan("digits", methods=["source-only", "fedavg"], targets=["street", "rendered"], seeds=[3, 1, 3])
    assert tasks(plan) == [
        (("handwritten", "rendered", "textured"), "street"),
        (("handwritten", "textured", "street"), "rendered"),
    ]
    assert [cell.seed for cell in plan.cells] == [3] * 4 + [1] * 4
    assert [cell.variant.name for cell in plan.cells[:4]] == ["source-only", "fedavg"] * 2
    assert [cell.config.method for cell in plan.cells[:2]] == ["source-only", "fedavg"]
    assert plan.cells[2].config.data.target == "rendered"
    assert plan.reference.name == "source-only"
    assert len({cell.folder for cell in plan.cells}) == 8


def test_a_few_methods_on_the_recipes_target_by_default_and_all_of_the_registry_if_wished():
    plan = make_plan("digits")
    assert [variant.name for variant in plan.variants] == ["fedrf-plus", "fedrf-tca", "source-only", "fedavg"]
    assert [variant.name for variant in make_plan("digits", methods=["all"]).variants] == list(PRESETS)
    assert [task.label for task in plan.tasks] == ["→ handwritten"]
    assert plan.seeds == (0, 1, 2)


def test_every_source_alone_and_all_together():
    plan = make_plan("digits", methods=["fedavg"], targets=["all"], sources="both")
    assert len(plan.tasks) == 4 * (1 + 3)
    assert [task.label for task in plan.tasks[:3]] == [
        "→ handwritten",
        "rendered → handwritten",
        "textured → handwritten",
    ]
    assert len(make_plan("digits", methods=["fedavg"], targets=["all"], sources="each").tasks) == 12


def test_the_recipes_own_sources_without_the_target():
    sources = ["data.sources=[rendered, textured]"]
    assert tasks(make_plan("digits", sources, targets=["street", "rendered"])) == [
        (("rendered", "textured"), "street"),
        (("textured",), "rendered"),
    ]


def test_one_other_domain_is_one_task(tmp_path):
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", X=np.ones((4, 3)), y=[0, 1, 0, 1])
    keys = ["data.name=features", f"data.root={tmp_path}"]
    plan = make_plan(None, keys, methods=["fedavg"], targets=["all"], sources="both")
    assert tasks(plan) == [(("b",), "a"), (("a",), "b")]


def test_domains_that_are_not_there_are_left_out_and_said(tmp_path):
    for name in ("amazon", "webcam"):
        (tmp_path / "office31" / name).mkdir(parents=True)
    plan = make_plan("office31", [f"data.root={tmp_path}"], methods=["fedavg"], targets=["all"])
    assert tasks(plan) == [(("webcam",), "amazon"), (("amazon",), "webcam")]
    assert plan.notes == ("office31: left out, because not there: dslr",)


def test_ablations_are_what_the_presets_say(monkeypatch):
    monkeypatch.setitem(PRESETS, "fedrf-tca", {"align.step": "gradient", "train.lr": 0.1})
    plan = make_plan("digits", ["train.lr=0.2"], ablate=True, methods=["source-only"], seeds=[0])
    assert [variant.name for variant in plan.variants] == [
        "fedrf-plus",
        "without align.step=proximal",
        "without train.lr=0.2",
        "all off (fedrf-tca)",
        "source-only",
    ]
    settings = [(cell.config.method, cell.config.align.step, cell.config.train.lr) for cell in plan.cells]
    assert settings == [
        ("fedrf-plus", "proximal", 0.2),
        ("fedrf-plus", "gradient", 0.2),
        ("fedrf-plus", "proximal", 0.1),
        ("fedrf-tca", "gradient", 0.1),
        ("source-only", "proximal", 0.2),
    ]


def test_every_real_ingredient_can_be_left_out():
    plan = make_plan("digits", ablate=True, seeds=[0])
    # Warped maps are for digits from files alone, and these leave pseudo-labels out.
    assert len(plan.variants) == len(PRESETS["fedrf-tca"].keys() - {"adapt.consistency"}) + 2
    names = [variant.name for variant in make_plan("digit-four", ablate=True, seeds=[0], look=False).variants]
    assert "without adapt.consistency=1" in names
    assert not any("adapt.pseudo_labels" in name for name in names)
    assert plan.cells[-1].digest == make_plan("digits", methods=["fedrf-tca"], seeds=[0]).cells[0].digest


def test_an_ingredient_that_is_off_already_is_no_ingredient():
    plan = make_plan("digits", ["adapt.when=never"], ablate=True)
    assert not any("adapt.when" in variant.name for variant in plan.variants)


def test_ingredients_that_need_each_other_go_together(monkeypatch):
    monkeypatch.setitem(PRESETS, "fedrf-tca", {"federation.prediction": "vote", "adapt.when": "never"})
    names = [variant.name for variant in make_plan("digits", ablate=True).variants]
    assert names[1:3] == [
        "without federation.prediction=average and adapt.when=last",
        "without adapt.when=last",
    ]
    monkeypatch.setitem(PRESETS, "fedrf-tca", {"federation.prediction": "vote"})
    with pytest.raises(
        ValueError, match=r"^--ablate: fedrf-plus cannot be without federation.prediction: .*adapt.when"
    ):
        make_plan("digits", ablate=True)


def test_values_of_one_key_at_a_time():
    plan = make_plan("digits", vary=["align.gamma=5e-3,0.05,0.050", "federation.delays={street: 1, rendered: 1},{}"])
    assert [variant.name for variant in plan.variants] == [
        "align.gamma=0.005",
        "align.gamma=0.05",
        "federation.delays={'street': 1.0, 'rendered': 1.0}",
        "federation.delays={}",
    ]
    assert [variant.knob for variant in plan.variants[:2]] == [("align.gamma", 0.005), ("align.gamma", 0.05)]
    assert plan.cells[0].digest == plan.cells[3].digest  # both are the recipe as it is
    assert plan.knobs == ("align.gamma", "federation.delays")
    both = make_plan("digits", vary=["train.lr=1,2"], methods=["fedavg", "fedrf-tca"])
    assert [variant.name for variant in both.variants][::3] == ["fedavg train.lr=1", "fedrf-tca train.lr=2"]


def test_a_complete_file_takes_the_place_of_what_makes_a_method_and_that_is_said(tmp_path):
    make_plan("digits", methods=["fedrf-plus"]).cells[0].config.save(tmp_path / "best.yaml")
    plan = make_plan(str(tmp_path / "best.yaml"), methods=["source-only"])
    assert "source-only has adapt.when=last from the recipe or call instead of its own never" in plan.notes


@pytest.mark.parametrize(
    ("overrides", "options", "complaint"),
    [
        ([], {"methods": ["fed"]}, "--methods: 'fed' is no method; allowed: fedrf-plus, "),
        ([], {"targets": ["moon"]}, "data.target='moon': the domains of digits are handwritten, "),
        ([], {"seeds": [2**32]}, "seed=4294967296"),
        (["seed=1"], {}, "seed is what a comparison varies: use --seeds"),
        (["method=fedavg"], {}, "use --methods"),
        (["train.rounds=0"], {}, "train.rounds=0: Input should be greater"),
        (["data.sources=rendered"], {"targets": ["rendered"]}, "no other domain is a source"),
        ([], {"vary": ["train.lr"]}, "--vary takes section.key=value,value"),
        ([], {"vary": ["train.speed=1,2"]}, "--vary train.speed: no such key"),
        ([], {"vary": ["train.lr=1,fast"]}, "train.lr='fast'"),
        ([], {"vary": ["data.target=street"]}, "--vary data.target: that is what --targets is for"),
        ([], {"vary": ["resources.max_restarts=1,2"]}, "resources.max_restarts: it changes no result"),
        ([], {"vary": ["train.lr=1"], "ablate": True}, "--ablate and --vary are two comparisons"),
    ],
)
def test_slips(overrides, options, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        make_plan("digits", overrides, **options)


def test_files_are_looked_for_before_anything_is_run(tmp_path):
    with pytest.raises(ValueError, match="not found"):
        make_plan("office31", [f"data.root={tmp_path}"])
    with pytest.raises(ValueError, match=r"model.weights=.*no such file"):
        make_plan("digits", ["model.weights=nowhere.pth"])
    assert make_plan("office31", [f"data.root={tmp_path}"], look=False).cells  # a cluster may have them
