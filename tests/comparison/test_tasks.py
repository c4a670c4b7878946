"""Tasks of a comparison: targets, and sources together or alone."""

import numpy as np

from fedrf.comparison.plan import plan_comparison


def domains(plan):
    return [(task.sources, task.target) for task in plan.tasks]


def test_every_source_alone_and_all_together():
    plan = plan_comparison("digits", methods=["fedavg"], targets=["all"], sources="both")
    assert len(plan.tasks) == 4 * (1 + 3)
    assert [task.label for task in plan.tasks[:3]] == [
        "→ handwritten",
        "rendered → handwritten",
        "textured → handwritten",
    ]
    assert len(plan_comparison("digits", methods=["fedavg"], targets=["all"], sources="each").tasks) == 12


def test_the_sources_of_the_recipe_without_the_target():
    sources = ["data.sources=[rendered, textured]"]
    assert domains(plan_comparison("digits", sources, targets=["street", "rendered"])) == [
        (("rendered", "textured"), "street"),
        (("textured",), "rendered"),
    ]


def test_a_single_source_gives_one_task(tmp_path):
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", X=np.ones((4, 3)), y=[0, 1, 0, 1])
    keys = ["data.name=features", f"data.root={tmp_path}"]
    plan = plan_comparison(None, keys, methods=["fedavg"], targets=["all"], sources="both")
    assert domains(plan) == [(("b",), "a"), (("a",), "b")]


def test_domains_without_files_are_left_out_with_a_note(tmp_path):
    for name in ("amazon", "webcam"):
        (tmp_path / "office31" / name / "mug").mkdir(parents=True)
        for number in range(2):
            (tmp_path / "office31" / name / f"mug/{number}.jpg").touch()
    keys = [f"data.root={tmp_path}", "data.allow_partial=true"]
    plan = plan_comparison("office31", keys, methods=["fedavg"], targets=["all"])
    assert domains(plan) == [(("webcam",), "amazon"), (("amazon",), "webcam")]
    assert plan.notes == ("office31: left out, because not there: dslr",)
