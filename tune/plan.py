"""What a sweep is: a recipe, a space, and how its points are found; all that must be known before a trial starts."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from fedrf.adaptation.selection import OF_SOURCES
from fedrf.config.loader import read_given
from fedrf.config.participation import reaches_nobody
from fedrf.config.presets import TARGET_TRAINS
from fedrf.config.schema import Config, Section, value_of
from fedrf.experiment.run import settled_config
from fedrf.files import write_atomically
from tune.space import (
    Measured,
    Parameter,
    Point,
    grid_points,
    load_space,
    random_points,
    varied,
    with_defaults,
)

SAMPLES = 12
Search = Literal["random", "grid", "bayes"]


class Plan(Section):
    """All that decides which trials there are; what `sweep.yaml` holds."""

    recipe: str
    given: dict[str, Any]
    space: dict[str, Parameter]
    search: Search
    samples: int | None
    early_stopping: bool
    measured: Measured | None = None

    @property
    def config(self) -> Config:
        """The configuration of the recipe as it is."""
        return varied(self.given, {})

    @property
    def needs_measuring(self) -> bool:
        """Whether the data must be asked: for a range, for σ in numbers, or for where γ matters, which is drawn."""
        return self.measured is None and not {"align.gamma", "model.sigma"}.isdisjoint(self.space)

    @property
    def settled(self) -> dict[str, Parameter]:
        """The space with all its ranges in numbers."""
        return {key: one.settled(self.measured) for key, one in self.space.items()}

    @property
    def default_point(self) -> Point:
        """The recipe as it is, which is always the first trial."""
        point = {key: value_of(self.config, key) for key in self.space}
        if point.get("model.sigma") == "median" and self.measured:
            point["model.sigma"] = float(f"{self.measured.sigma:.6g}")
        return point

    def points(self) -> list[Point]:
        """Return all points of a grid or random search that make a valid configuration, the recipe's own first."""
        first, space, count = self.default_point, self.settled, self.samples or SAMPLES
        others = grid_points(space) if self.search == "grid" else random_points(space, count, self.config.seed)
        wanted = [first, *(point for point in others if point != first)]
        wanted = wanted if self.search == "grid" else wanted[:count]
        return [point for point in wanted if _go_together(self.given, point)]

    def save(self, folder: Path) -> None:
        """Write sweep.yaml."""
        text = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_atomically(folder / "sweep.yaml", lambda path: path.write_text(text))

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """Read sweep.yaml."""
        path = folder / "sweep.yaml"
        if not path.is_file():
            raise ValueError(f"--resume: there is no sweep in {folder}; without --resume, one is begun there")
        return cls.model_validate(yaml.safe_load(path.read_text()))


def begin(plan: Plan, folder: Path, resume: bool) -> Plan:
    """Write a new sweep down, or return the one that is to be resumed; a call that means another one is refused."""
    if resume:
        begun = Plan.load(folder)
        for key in set(Plan.model_fields) - {"measured"}:
            if getattr(plan, key) != getattr(begun, key):
                raise ValueError(
                    f"--resume: {key} is not that of the sweep in {folder}; repeat the call that began it, or take "
                    "another --out"
                )
        return begun
    if any((folder / name).exists() for name in ("scout", "trials", "tune", "points.csv")):
        raise ValueError(f"{folder} already holds a sweep; continue it with --resume, or take another --out")
    plan.save(folder)
    return plan


def make_plan(
    recipe: str | None,
    overrides: Mapping[str, Any] | Iterable[str] = (),
    *,
    space: str = "default",
    search: Search = "random",
    samples: int | None = None,
    early_stopping: bool = True,
) -> Plan:
    """Check everything that can be checked before a trial is started."""
    parameters = load_space(space)
    given = with_defaults(read_given(recipe, overrides), parameters)
    config = settled_config(None, given)
    known = {"data.root": config.data.root, "data.classes": config.data.classes, "model.weights": config.model.weights}
    given = read_given(None, {**given, **{key: value for key, value in known.items() if value is not None}})
    if search == "grid" and samples is not None:
        raise ValueError("--samples is for --search random and bayes; a grid has as many points as its space says")
    if samples is not None and samples < 1:
        raise ValueError(f"--samples must be at least 1; got {samples}")
    if early_stopping and config.track.select in OF_SOURCES:
        raise ValueError(
            f"track.select={config.track.select} is the sources' to say, and known at the end of a trial: --to-the-end"
        )
    if search == "bayes":
        import_optuna()
    for key in list(parameters):
        _check_key(key, early_stopping)
        idle = _why_idle(config, key)
        if idle:
            warnings.warn(f"{key} is left out of the sweep: it does nothing with {idle}", stacklevel=2)
            del parameters[key]
    if not parameters:
        raise ValueError("nothing is left to sweep; name another --space")
    for key, parameter in parameters.items():
        for value in () if parameter.is_measured else parameter.grid():
            varied(given, {key: value} if key == "method" else {**_loose(config), key: value})
    plan = Plan(
        recipe=recipe or "defaults",
        given=given,
        space=parameters,
        search=search,
        samples=samples,
        early_stopping=early_stopping,
    )
    return Plan.model_validate(plan.model_dump(mode="json"))  # as it will be read: lists, no tuples


def _go_together(given: Mapping[str, Any], point: Point) -> bool:
    """Tell whether the values of a point go together; each for itself has been checked."""
    try:
        varied(given, point)
    except ValueError:
        return False
    return True


def _loose(config: Config) -> Point:
    """Return settings with which values can be tried one by one, before their combinations are."""
    return {"model.dim": 1} if config.model.dim > 1 else {}


def _check_key(key: str, early_stopping: bool) -> None:
    if key.startswith(("data.", "resources.", "track.")):
        raise ValueError(f"{key} cannot be swept: all trials have the same clients, in the same room")
    if early_stopping and key in ("train.rounds", "adapt.steps", "adapt.when"):
        raise ValueError(f"{key} makes trials of different length, which early stopping cannot compare: --to-the-end")


def _why_idle(config: Config, key: str) -> str | None:
    """Return the setting with which a key changes nothing; None if it does."""
    align, federation = config.align, config.federation
    no_embeddings = reaches_nobody(federation.messages)[0]
    if key == "align.gamma" and align.warm_start == "none" and (align.step == "gradient" or no_embeddings):
        return "align.step=gradient" if align.step == "gradient" else f"federation.messages={federation.messages}"
    has_other_terms = config.method in TARGET_TRAINS or config.data.pooled == "all"
    if key == "align.weight" and no_embeddings and not has_other_terms:
        return f"federation.messages={federation.messages}"
    if key in ("model.sigma", "model.num_features") and config.model.kernel == "none":
        return "model.kernel=none"
    if key == "federation.classifier_interval" and federation.prediction == "vote":
        return "federation.prediction=vote"
    return None


def import_optuna() -> Any:
    """Return Ray Tune's searcher by Optuna, which is an extra."""
    try:
        import optuna
        from ray.tune.search.optuna import OptunaSearch
    except ImportError:
        raise ValueError(
            "--search bayes needs Optuna: pip install 'fedrf[bayes]'; random and grid need nothing"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return OptunaSearch
