"""Plans of sweeps: their points, what is refused before the first trial, and resuming."""

import warnings

import pytest

from fedrf.config.loader import load_config
from tests.tune.conftest import SMALL, write_space
from tune.measurement import SHORT_RUN
from tune.plan import plan_sweep, start_or_resume
from tune.space import config_at
from tune.swept_keys import setting_without_effect


@pytest.mark.parametrize(
    ("keys", "options", "message"),
    [
        ({"align.step": "gradient"}, {"space": "gamma"}, "no key is left to sweep; choose another --space"),
        ({}, {"search": "grid", "samples": 3}, "--samples is for --search random and bayes"),
        ({}, {"samples": 0}, "--samples must be at least 1; got 0"),
        ({"data.target": "nowhere"}, {}, "data.target"),
        ({"train.rounds": 4}, {}, "federation.classifier_interval=5 with train.rounds=4"),
        (
            {"track.select": "dev", "data.validation": 0.2},
            {},
            r"track\.select=dev is computed by the sources.* --to-the-end",
        ),
    ],
)
def test_invalid_plans_are_refused(keys, options, message):
    with pytest.raises(ValueError, match=message):
        plan_sweep("digits", {"method": "fedrf-plus", **keys}, **options)


@pytest.mark.parametrize(
    ("method", "effective"),
    [
        ("fedrf-plus", {"align.gamma", "model.sigma", "model.num_features", "federation.classifier_interval"}),
        ("fedrf-tca", {"model.sigma", "model.num_features", "federation.classifier_interval"}),
        ("fedrf-oneshot", {"model.sigma", "model.num_features"}),
        ("fedavg", {"federation.classifier_interval"}),
        ("fedavg-rf", {"model.sigma", "model.num_features", "federation.classifier_interval"}),
        ("source-only", {"model.sigma", "model.num_features"}),
    ],
)
def test_keys_without_effect_on_a_method_are_left_out_with_a_warning(method, effective):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = plan_sweep("digits", {"method": method})
    assert set(plan.space) == effective
    assert len(caught) == 4 - len(effective)
    assert plan.needs_measuring == ("model.sigma" in effective)
    if plan.needs_measuring:  # the run that measures the ranges is a valid configuration too
        assert config_at(plan.given, SHORT_RUN).train.rounds == 1


@pytest.mark.parametrize(
    ("keys", "setting"),
    [
        ({"method": "fedrf-plus"}, None),
        ({"method": "fedrf-plus", "federation.embeddings_from": "none"}, "federation.embeddings_from=none"),
        ({"method": "fedrf-tca", "federation.embeddings_from": "none"}, "federation.embeddings_from=none"),
        ({"method": "fedavg"}, "federation.embeddings_from=none"),
        ({"method": "fade-dann"}, None),
        ({"method": "pooled-dann"}, None),
    ],
)
def test_lambda_has_an_effect_where_a_loss_has_it(keys, setting):
    assert setting_without_effect(load_config(None, keys), "align.weight") == setting


def test_the_rate_of_a_frozen_extractor_has_no_effect():
    frozen, local = (load_config(None, {"model.sharing": sharing}) for sharing in ("frozen", "local"))
    assert setting_without_effect(frozen, "train.extractor_lr_factor") == "model.sharing=frozen"
    assert setting_without_effect(local, "train.extractor_lr_factor") is None


@pytest.mark.parametrize("key", ["data.samples", "resources.max_restarts", "train.rounds"])
def test_keys_that_trials_must_share_are_refused(tmp_path, key):
    space = write_space(tmp_path, **{key: {"default": 2, "values": [2, 3]}})
    with pytest.raises(ValueError, match=key):
        plan_sweep("digits", space=space)


def test_the_first_point_is_the_recipe_and_all_points_are_valid(tmp_path):
    space = write_space(
        tmp_path,
        model__num_features={"default": 500, "values": [4, 100]},
        model__dim={"default": 64, "values": [8, 16]},
    )
    plan = plan_sweep("digits", {"model.num_features": 77}, space=space, search="grid")
    assert plan.points() == [
        {"model.num_features": 77, "model.dim": 64},
        {"model.num_features": 4, "model.dim": 8},  # 16 would be more than 2 · 4
        {"model.num_features": 100, "model.dim": 8},
        {"model.num_features": 100, "model.dim": 16},
    ]


def test_a_folder_holds_one_sweep_and_only_the_same_sweep_can_be_resumed(tmp_path):
    space = write_space(tmp_path, train__lr={"default": 0.003, "range": [0.001, 0.01]})
    plan = plan_sweep("digits", {**SMALL, "data.sources": ("street",)}, space=space, samples=3)
    start_or_resume(plan, tmp_path / "sweep", resume=False)
    start_or_resume(plan, tmp_path / "sweep", resume=False)  # no trial has started yet
    (tmp_path / "sweep/trials").mkdir()
    with pytest.raises(ValueError, match="already holds a sweep; continue it with --resume"):
        start_or_resume(plan, tmp_path / "sweep", resume=False)
    assert start_or_resume(plan, tmp_path / "sweep", resume=True) == plan
    other = plan_sweep("digits", {**SMALL, "data.sources": ("street",)}, space=space, samples=4)
    with pytest.raises(ValueError, match="--resume: samples differs from the sweep"):
        start_or_resume(other, tmp_path / "sweep", resume=True)
    with pytest.raises(ValueError, match="there is no sweep in"):
        start_or_resume(plan, tmp_path / "none", resume=True)
