"""The plan of a sweep: recipe, space and search, all checked before the first trial starts."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from fedrf.adaptation.selection import BY_SOURCES
from fedrf.config.keys import value_of
from fedrf.config.loader import read_given
from fedrf.config.schema import Config, Section
from fedrf.experiment.disk import check_writable
from fedrf.experiment.resolve import resolve_config
from fedrf.files import write_atomically
from tune.space import (
    MeasuredRanges,
    Parameter,
    Point,
    Space,
    config_at,
    grid_points,
    load_space,
    random_points,
    with_defaults,
)
from tune.swept_keys import check_key, setting_without_effect

DEFAULT_SAMPLES = 12
Search = Literal["random", "grid", "bayes"]


class SweepPlan(Section):
    """Everything that determines the trials: the contents of `sweep.yaml`."""

    recipe: str
    given: dict[str, Any]
    space: dict[str, Parameter]
    search: Search
    samples: int | None
    early_stopping: bool
    measured: MeasuredRanges | None = None

    @property
    def config(self) -> Config:
        """The configuration of the recipe itself."""
        return config_at(self.given, {})

    @property
    def needs_measuring(self) -> bool:
        """Whether γ or σ is swept: their ranges, and the informative range in plots, are measured on the data."""
        return self.measured is None and not {"align.gamma", "model.sigma"}.isdisjoint(self.space)

    @property
    def resolved_space(self) -> Space:
        """The space with measured numbers in all its ranges."""
        return {key: parameter.resolve(self.measured) for key, parameter in self.space.items()}

    @property
    def default_point(self) -> Point:
        """The recipe itself, which is always the first trial."""
        point = {key: value_of(self.config, key) for key in self.space}
        if point.get("model.sigma") == "median" and self.measured:
            point["model.sigma"] = float(f"{self.measured.sigma:.6g}")
        return point

    def points(self) -> list[Point]:
        """Return all valid points of a grid or random search, the recipe's own first."""
        first, space, count = self.default_point, self.resolved_space, self.samples or DEFAULT_SAMPLES
        others = grid_points(space) if self.search == "grid" else random_points(space, count, self.config.seed)
        points = [first, *(point for point in others if point != first)]
        points = points if self.search == "grid" else points[:count]
        return [point for point in points if _is_valid(self.given, point)]

    def save(self, folder: Path) -> None:
        """Write sweep.yaml."""
        text = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_atomically(folder / "sweep.yaml", lambda path: path.write_text(text))

    @classmethod
    def load(cls, folder: Path) -> SweepPlan:
        """Read sweep.yaml."""
        path = folder / "sweep.yaml"
        if not path.is_file():
            raise ValueError(f"--resume: there is no sweep in {folder}; to start one, leave --resume out")
        return cls.model_validate(yaml.safe_load(path.read_text()))


def check_folder(plan: SweepPlan, folder: Path, resume: bool) -> SweepPlan:
    """Return the plan, or the saved plan of the sweep to resume, which must be the same; nothing is written."""
    check_writable("--out", folder)
    if resume:
        saved = SweepPlan.load(folder)
        for key in set(SweepPlan.model_fields) - {"measured"}:
            if getattr(plan, key) != getattr(saved, key):
                raise ValueError(
                    f"--resume: {key} differs from the sweep in {folder}; repeat the call that started it, or choose "
                    "another --out"
                )
        return saved
    if any((folder / name).exists() for name in ("scout", "trials", "tune", "points.csv")):
        raise ValueError(f"{folder} already holds a sweep; continue it with --resume, or choose another --out")
    return plan


def start_or_resume(plan: SweepPlan, folder: Path, resume: bool) -> SweepPlan:
    """Save the plan of a new sweep, or return the saved plan of the sweep to resume."""
    checked = check_folder(plan, folder, resume)
    if not resume:
        plan.save(folder)
    return checked


def plan_sweep(
    recipe: str | None,
    overrides: Mapping[str, Any] | Iterable[str] = (),
    *,
    space: str = "default",
    search: Search = "random",
    samples: int | None = None,
    early_stopping: bool = True,
) -> SweepPlan:
    """Return the plan of a sweep, after checking everything that can be checked before a trial."""
    parameters = load_space(space)
    given = with_defaults(read_given(recipe, overrides), parameters)
    config = resolve_config(None, given)
    data, weights = config.data, config.model.weights
    resolved = {"data.root": data.root, "data.classes": data.classes, "model.weights": weights}
    given = read_given(None, {**given, **{key: value for key, value in resolved.items() if value is not None}})
    _check_options(config, search, samples, early_stopping)
    parameters = _effective(parameters, config, early_stopping)
    for key, parameter in parameters.items():
        for value in () if parameter.is_measured else parameter.grid():
            config_at(given, {key: value} if key == "method" else {**_smallest_dim(config), key: value})
    plan = SweepPlan(
        recipe=recipe or "defaults",
        given=given,
        space=parameters,
        search=search,
        samples=samples,
        early_stopping=early_stopping,
    )
    return SweepPlan.model_validate(plan.model_dump(mode="json"))  # as read from sweep.yaml: lists, no tuples


def _check_options(config: Config, search: Search, samples: int | None, early_stopping: bool) -> None:
    if search == "grid" and samples is not None:
        raise ValueError("--samples is for --search random and bayes; the space determines the points of a grid")
    if samples is not None and samples < 1:
        raise ValueError(f"--samples must be at least 1; got {samples}")
    if early_stopping and config.track.select in BY_SOURCES:
        raise ValueError(
            f"track.select={config.track.select} is computed by the sources at the end of a trial; use --to-the-end"
        )
    if search == "bayes":
        import_optuna()


def _effective(space: Space, config: Config, early_stopping: bool) -> Space:
    """Return the parameters that have an effect; warn about the others."""
    effective = {}
    for key, parameter in space.items():
        check_key(key, early_stopping)
        setting = setting_without_effect(config, key)
        if setting:
            warnings.warn(f"{key} is left out of the sweep: it has no effect with {setting}", stacklevel=3)
        else:
            effective[key] = parameter
    if not effective:
        raise ValueError("no key is left to sweep; choose another --space")
    return effective


def _is_valid(given: Mapping[str, Any], point: Point) -> bool:
    """Return whether the values of a point are valid together; each of them alone has been checked."""
    try:
        config_at(given, point)
    except ValueError:
        return False
    return True


def _smallest_dim(config: Config) -> Point:
    """Return settings that allow any N: values are first checked alone, their combinations later."""
    return {"model.dim": 1} if config.model.dim > 1 else {}


def import_optuna() -> Any:
    """Return Ray Tune's Optuna searcher; Optuna is an extra."""
    try:
        import optuna
        from ray.tune.search.optuna import OptunaSearch
    except ImportError:
        raise ValueError(
            "--search bayes needs Optuna: pip install 'fedrf[bayes]'; random and grid do not need it"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return OptunaSearch
