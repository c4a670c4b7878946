"""A search space: a YAML file with, for each key of the configuration, its default and its values or range.

```yaml
align.gamma: {default: 0.005, range: informative}          # measured on the data
model.sigma: {default: median, range: [0.25, 4], times: median}
model.num_features: {default: 500, values: [125, 250, 500, 1000]}
train.lr: {default: 0.003, range: [0.0003, 0.03], scale: log, points: 5}
```
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from fedrf.config.keys import describe_keys
from fedrf.config.loader import load_config, read_given, recipe_settings
from fedrf.config.schema import Config, Section

SPACES = Path(__file__).parent / "spaces"
DRAWS_PER_POINT = 100  # after so many draws for each point a space counts as exhausted

Point = dict[str, Any]


class MeasuredRanges(NamedTuple):
    """Ranges measured on the data: the median distance σ, and the interval in which γ is informative."""

    sigma: float
    informative_gamma: tuple[float, float]


class Parameter(Section):
    """One key: its default, and either the values to try or a range."""

    default: Any
    values: Annotated[list[Any], Field(min_length=1)] | None = None
    range: tuple[float, float] | Literal["informative"] | None = None
    times: Literal["median"] | None = None
    scale: Literal["log", "linear"] = "log"
    whole: bool = False
    points: Annotated[int, Field(ge=2)] = 5

    @model_validator(mode="after")
    def _check_range(self) -> Parameter:
        if (self.values is None) == (self.range is None):
            raise ValueError("needs either values or a range")
        if isinstance(self.range, tuple) and not (
            self.range[0] < self.range[1] and (self.scale == "linear" or self.range[0] > 0)
        ):
            raise ValueError(f"range must be [low, high], above 0 on a log scale; got {list(self.range)}")
        if self.times and not isinstance(self.range, tuple):
            raise ValueError("times needs a range of two numbers")
        return self

    @property
    def is_measured(self) -> bool:
        """Whether the range depends on the data."""
        return self.range == "informative" or self.times is not None

    def resolve(self, measured: MeasuredRanges | None) -> Parameter:
        """Return the parameter with its measured range in numbers."""
        if not self.is_measured:
            return self
        assert measured is not None
        if self.range == "informative":
            return self.model_copy(update={"range": measured.informative_gamma})
        low, high = self.range  # type: ignore[misc]
        update = {"range": (low * measured.sigma, high * measured.sigma), "times": None}
        return self.model_copy(update=update | ({"default": measured.sigma} if self.default == "median" else {}))

    def including(self, value: Any) -> Parameter:
        """Return the parameter with one more value, or with its range extended to that value."""
        if self.values is not None:
            return self if value in self.values else self.model_copy(update={"values": [*self.values, value]})
        low, high = self._bounds()
        return self.model_copy(update={"range": (min(low, value), max(high, value))})

    def grid(self) -> list[Any]:
        """Return all values, or evenly spaced values of the range, including both ends."""
        if self.values is not None:
            return self.values
        low, high = self._bounds()
        spaced = np.geomspace if self.scale == "log" else np.linspace
        return list(dict.fromkeys(self._rounded(value) for value in spaced(low, high, self.points)))

    def draw(self, random: np.random.RandomState) -> Any:
        """Return a random value."""
        if self.values is not None:
            return self.values[random.randint(len(self.values))]
        low, high = self._bounds()
        if self.scale == "log":
            return self._rounded(np.exp(random.uniform(np.log(low), np.log(high))))
        return self._rounded(random.uniform(low, high))

    def domain(self) -> Any:
        """Return the Ray Tune search domain, for searchers that suggest values."""
        from ray import tune

        if self.values is not None:
            return tune.choice(self.values)
        low, high = self._bounds()
        if self.whole:
            return (tune.lograndint if self.scale == "log" else tune.randint)(int(low), int(high) + 1)
        return (tune.loguniform if self.scale == "log" else tune.uniform)(low, high)

    def _bounds(self) -> tuple[float, float]:
        assert isinstance(self.range, tuple), "the range is not measured yet"
        return self.range

    def _rounded(self, value: float) -> float | int:
        return round(value) if self.whole else float(f"{value:.6g}")


Space = dict[str, Parameter]


def space_names() -> list[str]:
    """Return the names of the built-in spaces."""
    return sorted(path.stem for path in SPACES.glob("*.yaml"))


def load_space(name: str) -> Space:
    """Read a built-in space by its name, or a YAML file."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else SPACES / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(f"--space {name}: not a space and not a YAML file; spaces: {', '.join(space_names())}")
    try:
        content = yaml.safe_load(path.read_text())
        space = TypeAdapter(Annotated[Space, Field(min_length=1)]).validate_python(content)
    except yaml.YAMLError as error:
        raise ValueError(f"--space {path} is not YAML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"--space {path}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
    _check_keys(space, path)
    return space


def _check_keys(space: Space, path: Path) -> None:
    known = {key.name for key in describe_keys()}
    for key, parameter in space.items():
        if key not in known:
            raise ValueError(f"--space {path}: unknown key {key}; `fedrf run --keys` lists them")
        if (parameter.range == "informative" and key != "align.gamma") or (
            parameter.times == "median" and key != "model.sigma"
        ):
            raise ValueError(f"--space {path}: the range of {key} cannot be measured; give two numbers")


def config_at(given: Mapping[str, Any], point: Point) -> Config:
    """Return the configuration at one point: the method's settings, then those given, then the point."""
    return load_config(None, {**given, **point})


def with_defaults(given: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """Add the space's defaults of the keys that neither the recipe nor the call sets."""
    missing = {key: parameter.default for key, parameter in space.items() if not _is_set(given, key)}
    return read_given(None, {**given, **missing})


def _is_set(given: Mapping[str, Any], key: str) -> bool:
    section, _, name = key.rpartition(".")
    return key in recipe_settings(given) or name in ((given.get(section) or {}) if section else given)


def grid_points(space: Space) -> list[Point]:
    """Return all combinations of the parameters' grids."""
    grids = (parameter.grid() for parameter in space.values())
    return [dict(zip(space, values, strict=True)) for values in product(*grids)]


def random_points(space: Space, count: int, seed: int) -> list[Point]:
    """Return distinct random points; fewer than `count` if the space is too small."""
    random = np.random.RandomState(seed)
    drawn: dict[str, Point] = {}
    for _ in range(DRAWS_PER_POINT * count):
        point = {key: parameter.draw(random) for key, parameter in space.items()}
        drawn.setdefault(repr(point), point)
        if len(drawn) == count:
            break
    return list(drawn.values())
