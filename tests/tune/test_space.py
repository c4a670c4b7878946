"""Search spaces: their files, grids and random points, and what is refused."""

import re

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedrf.config.loader import load_config
from tune.space import (
    MeasuredRanges,
    Parameter,
    config_at,
    grid_points,
    load_space,
    random_points,
    space_names,
    with_defaults,
)

MEASURED = MeasuredRanges(0.8, (1e-4, 1e-2))


@pytest.mark.parametrize("name", space_names())
def test_every_space_has_valid_defaults_and_values(name):
    space = load_space(name)
    base = with_defaults(
        {"model": {"dim": 1}}, {key: parameter for key, parameter in space.items() if key != "model.dim"}
    )
    assert load_config(None, base)
    for key, parameter in space.items():
        for value in parameter.resolve(MEASURED).grid():
            config_at(base, {key: value})


def test_the_default_space_has_the_four_hyperparameters_of_the_paper():
    assert set(load_space("default")) == {
        "align.gamma",
        "model.sigma",
        "model.num_features",
        "federation.classifier_interval",
    }
    assert set(load_space("all")) - set(load_space("default")) == {"model.dim", "align.weight", "train.lr"}


def test_defaults_are_those_of_the_configuration():
    """The defaults of a space must be those of a run without a sweep."""
    plain = load_config().model_dump(mode="json")
    for key, parameter in load_space("all").items():
        section, name = key.split(".")
        assert parameter.default == plain[section][name], key


def test_the_recipe_overrides_the_default_of_the_space():
    space = {"train.lr": Parameter(default=0.5, values=[0.5]), "align.gamma": Parameter(default=7.0, values=[7.0])}
    made = with_defaults({"train": {"lr": 0.1, "rounds": 3}}, space)
    assert made == {"train": {"lr": 0.1, "rounds": 3}, "align": {"gamma": 7.0}}


def test_measured_ranges_come_from_the_data():
    space = {key: parameter.resolve(MEASURED) for key, parameter in load_space("default").items()}
    assert space["align.gamma"].range == (1e-4, 1e-2)
    assert space["model.sigma"].range == (0.25 * 0.8, 4 * 0.8)
    assert space["model.sigma"].default == 0.8
    assert space["model.num_features"] == load_space("default")["model.num_features"]


def test_a_space_can_be_extended_to_include_a_value():
    listed, ranged = Parameter(default=1, values=[1, 2]), Parameter(default=1.0, range=(1, 2))
    assert listed.including(3).values == [1, 2, 3]
    assert listed.including(2) == listed
    assert ranged.including(0.5).range == (0.5, 2)
    assert ranged.including(3.0).range == (1, 3)
    assert ranged.including(1.5).range == (1, 2)


def test_a_grid_includes_both_ends_of_the_range():
    assert Parameter(default=1, range=(0.01, 100), points=5).grid() == [0.01, 0.1, 1, 10, 100]
    assert Parameter(default=1, range=(0, 4), scale="linear", points=3).grid() == [0, 2, 4]
    assert Parameter(default=1, range=(1, 3), whole=True, points=9).grid() == [1, 2, 3]
    space = {"a": Parameter(default=1, values=[1, 2]), "b": Parameter(default=1, values=[3, 4, 5])}
    assert grid_points(space) == [{"a": a, "b": b} for a in (1, 2) for b in (3, 4, 5)]


@given(st.floats(1e-6, 1e3), st.floats(1.01, 1e6), st.sampled_from(["log", "linear"]), st.integers(0, 2**31))
def test_draws_stay_within_the_range(low, factor, scale, seed):
    parameter = Parameter(default=low, range=(low, low * factor), scale=scale)
    drawn = [parameter.draw(np.random.RandomState(seed + n)) for n in range(20)]
    assert all(low * (1 - 1e-5) <= value <= low * factor * (1 + 1e-5) for value in drawn)


def test_log_draws_are_uniform_over_the_decades():
    parameter, random = Parameter(default=1.0, range=(1e-4, 1e4)), np.random.RandomState(0)
    decades = np.log10([parameter.draw(random) for _ in range(4000)])
    assert np.allclose(np.histogram(decades, 8)[0] / 4000, 1 / 8, atol=0.03)


def test_random_points_are_distinct_and_reproducible():
    space = {key: parameter.resolve(MEASURED) for key, parameter in load_space("default").items()}
    points = random_points(space, 30, 1)
    assert len({repr(point) for point in points}) == 30
    assert points == random_points(space, 30, 1)
    assert points != random_points(space, 30, 2)


def test_a_small_space_gives_all_its_points():
    space = {"a": Parameter(default=1, values=[1, 2, 3])}
    assert sorted(point["a"] for point in random_points(space, 10, 0)) == [1, 2, 3]


def test_a_point_with_another_method_gets_its_settings():
    config = config_at({"data": {"name": "digits"}}, {"method": "fedavg", "train.lr": 0.1})
    assert (config.model.sharing, config.train.lr) == ("averaged", 0.1)


def test_a_point_does_not_change_the_given_settings():
    given = {"train": {"lr": 0.1}}
    assert config_at(given, {"train.lr": 0.2}).train.lr == 0.2
    assert given == {"train": {"lr": 0.1}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"align.gama": {"default": 1, "values": [1]}}, "unknown key align.gama; `fedrf run --keys` lists them"),
        ({"align.gamma": {"default": 1}}, "align.gamma: needs either values or a range"),
        ({"align.gamma": {"default": 1, "values": [1], "range": [1, 2]}}, "needs either values or a range"),
        ({"align.gamma": {"default": 1, "range": [2, 1]}}, "range must be [low, high], above 0 on a log scale"),
        ({"align.gamma": {"default": 1, "range": [0, 1]}}, "range must be [low, high], above 0 on a log scale"),
        (
            {"train.lr": {"default": 1, "range": "informative"}},
            "the range of train.lr cannot be measured; give two numbers",
        ),
        ({"train.lr": {"default": 1, "range": [1, 2], "times": "median"}}, "the range of train.lr cannot be measured"),
        ({"model.sigma": {"default": 1, "values": [1], "times": "median"}}, "times needs a range of two numbers"),
        ({"train.lr": {"default": 1, "values": []}}, "train.lr.values"),
        ({}, "at least 1 item"),
        ([1], "dictionary"),
    ],
)
def test_an_invalid_space_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_space(str(path))
    assert "\n" not in str(caught.value)


def test_the_error_for_an_unknown_space_lists_the_spaces():
    with pytest.raises(ValueError, match="spaces: all, default, gamma, interval"):
        load_space("gama")
