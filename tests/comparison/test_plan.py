"""The runs of a comparison, and what is refused before the first run."""

import re

import pytest

from fedrf.comparison.plan import plan_comparison


def test_all_tasks_and_variants_run_with_the_first_seed_first():
    plan = plan_comparison("digits", methods=["source-only", "fedavg"], targets=["street", "rendered"], seeds=[3, 1, 3])
    assert [(task.sources, task.target) for task in plan.tasks] == [
        (("handwritten", "rendered", "textured"), "street"),
        (("handwritten", "textured", "street"), "rendered"),
    ]
    assert [cell.seed for cell in plan.cells] == [3] * 4 + [1] * 4
    assert [cell.variant.name for cell in plan.cells[:4]] == ["source-only", "fedavg"] * 2
    assert [cell.config.method for cell in plan.cells[:2]] == ["source-only", "fedavg"]
    assert plan.cells[2].config.data.target == "rendered"
    assert plan.reference.name == "source-only"
    assert len({cell.folder for cell in plan.cells}) == 8


@pytest.mark.parametrize(
    ("overrides", "options", "message"),
    [
        ([], {"methods": ["fed"]}, "--methods: 'fed' is not a method; allowed: fedrf-oneshot, "),
        ([], {"targets": ["moon"]}, "data.target='moon': the domains of digits are handwritten, "),
        ([], {"seeds": [2**32]}, "seed=4294967296"),
        (["seed=1"], {}, "seed cannot be set in a comparison; use --seeds"),
        (["method=fedavg"], {}, "method cannot be set in a comparison; use --methods"),
        (["train.rounds=0"], {}, "train.rounds=0 needs W and C in closed form"),
        (["data.sources=rendered"], {"targets": ["rendered"]}, "there is no other domain as a source"),
        ([], {"vary": ["train.lr"]}, "--vary takes section.key=value,value"),
        ([], {"vary": ["train.speed=1,2"]}, "--vary train.speed: unknown key"),
        ([], {"vary": ["train.lr=1,fast"]}, "train.lr='fast'"),
        ([], {"vary": ["data.target=street"]}, "--vary data.target is not allowed; use --targets"),
        ([], {"vary": ["resources.max_restarts=1,2"]}, "resources.max_restarts: this key does not affect results"),
        ([], {"vary": ["train.lr=1"], "ablate": True}, "--ablate and --vary cannot be combined"),
    ],
)
def test_invalid_calls_are_refused(overrides, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        plan_comparison("digits", overrides, **options)


def test_missing_files_are_reported_before_the_first_run(tmp_path):
    with pytest.raises(ValueError, match="not found"):
        plan_comparison("office31", [f"data.root={tmp_path}"])
    with pytest.raises(ValueError, match=r"model.weights=.*no such file"):
        plan_comparison("digits", ["model.weights=nowhere.pth"])
    assert plan_comparison("office31", [f"data.root={tmp_path}"], require_files=False).cells  # a cluster may have them
