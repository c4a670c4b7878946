"""A search space: a small YAML file that has, for each key of the configuration, its default and where to look.

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

from fedrf.config.loader import load_config, read_given
from fedrf.config.schema import Config, Section

SPACES = Path(__file__).parent / "spaces"
TRIES = 100  # draws for each wanted point, before a space is taken for exhausted

Point = dict[str, Any]


class Measured(NamedTuple):
    """What the data say about a range: the median width σ, and the interval in which γ matters."""

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
    def _one_of_both(self) -> Parameter:
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

    def settled(self, measured: Measured | None) -> Parameter:
        """Return the parameter with numbers in place of what was to be measured."""
        if not self.is_measured:
            return self
        assert measured is not None
        if self.range == "informative":
            return self.model_copy(update={"range": measured.informative_gamma})
        low, high = self.range  # type: ignore[misc]
        update = {"range": (low * measured.sigma, high * measured.sigma), "times": None}
        return self.model_copy(update=update | ({"default": measured.sigma} if self.default == "median" else {}))

    def including(self, value: Any) -> Parameter:
        """Return the parameter with one more value allowed, or its range as wide as that needs."""
        if self.values is not None:
            return self if value in self.values else self.model_copy(update={"values": [*self.values, value]})
        low, high = self._ends()
        return self.model_copy(update={"range": (min(low, value), max(high, value))})

    def grid(self) -> list[Any]:
        """Return all values, or evenly spaced ones from one end of the range to the other."""
        if self.values is not None:
            return self.values
        low, high = self._ends()
        spaced = np.geomspace if self.scale == "log" else np.linspace
        return list(dict.fromkeys(self._rounded(value) for value in spaced(low, high, self.points)))

    def draw(self, random: np.random.RandomState) -> Any:
        """Return a random value."""
        if self.values is not None:
            return self.values[random.randint(len(self.values))]
        low, high = self._ends()
        if self.scale == "log":
            return self._rounded(np.exp(random.uniform(np.log(low), np.log(high))))
        return self._rounded(random.uniform(low, high))

    def domain(self) -> Any:
        """Return what Ray Tune calls a domain, for searchers that suggest values themselves."""
        from ray import tune

        if self.values is not None:
            return tune.choice(self.values)
        low, high = self._ends()
        if self.whole:
            return (tune.lograndint if self.scale == "log" else tune.randint)(int(low), int(high) + 1)
        return (tune.loguniform if self.scale == "log" else tune.uniform)(low, high)

    def _ends(self) -> tuple[float, float]:
        assert isinstance(self.range, tuple), "measured before it is used"
        return self.range

    def _rounded(self, value: float) -> float | int:
        return round(value) if self.whole else float(f"{value:.6g}")


Space = dict[str, Parameter]


def spaces() -> list[str]:
    """Return the names of the spaces that come with the sweeps."""
    return sorted(path.stem for path in SPACES.glob("*.yaml"))


def load_space(name: str) -> Space:
    """Read a space by its name, or from a file that ends in .yaml."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else SPACES / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(f"--space {name}: no such file and no such space; spaces: {', '.join(spaces())}")
    try:
        content = yaml.safe_load(path.read_text())
        space = TypeAdapter(Annotated[Space, Field(min_length=1)]).validate_python(content)
    except yaml.YAMLError as error:
        raise ValueError(f"--space {path} is not YAML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"--space {path}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
    known = {key for key, *_ in Config.describe()}
    for key, parameter in space.items():
        if key not in known:
            raise ValueError(f"--space {path}: unknown key {key}; `fedrf run --keys` lists them")
        if (parameter.range == "informative") > (key == "align.gamma") or (parameter.times == "median") > (
            key == "model.sigma"
        ):
            raise ValueError(f"--space {path}: {key} has no range of its own in the data; give two numbers")
    return space


def varied(given: Mapping[str, Any], point: Point) -> Config:
    """Return the configuration for one point: presets, then what is given, then the point."""
    return load_config(None, {**given, **point})


def with_defaults(given: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """Add the space's defaults for keys that neither the recipe nor the call has set."""
    missing = {key: one.default for key, one in space.items() if not _holds(given, key)}
    return read_given(None, {**given, **missing})


def _holds(given: Mapping[str, Any], key: str) -> bool:
    section, _, name = key.rpartition(".")
    return name in ((given.get(section) or {}) if section else given)


def grid_points(space: Space) -> list[Point]:
    """Return every combination of every parameter's grid."""
    return [dict(zip(space, values, strict=True)) for values in product(*(one.grid() for one in space.values()))]


def random_points(space: Space, count: int, seed: int) -> list[Point]:
    """Return different random points; fewer where the space has no more."""
    random = np.random.RandomState(seed)
    drawn: dict[str, Point] = {}
    for _ in range(TRIES * count):
        point = {key: one.draw(random) for key, one in space.items()}
        drawn.setdefault(repr(point), point)
        if len(drawn) == count:
            break
    return list(drawn.values())
