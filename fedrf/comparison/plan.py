"""The runs of a comparison: tasks × variants × seeds, all checked before the first run starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrf.comparison.tasks import SourceGrouping, Task, find_tasks
from fedrf.comparison.variants import OPTIONS, Settings, Variant, find_variants
from fedrf.config.loader import load_config, read_given
from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.experiment.resolve import check_files, resolve_config

DEFAULT_SEEDS = (0, 1, 2)
MAX_NAME_LENGTH = 80  # characters of a folder's name


@dataclass(frozen=True)
class Cell:
    """One run of the comparison; cells with the same digest share one run."""

    task: Task
    variant: Variant
    seed: int
    config: Config
    digest: str

    @property
    def folder(self) -> Path:
        """The run directory, relative to the comparison's folder."""
        task = f"{'+'.join(self.task.sources)}-to-{self.task.target}"
        return Path("runs", _as_file_name(task), _as_file_name(self.variant.name), f"seed-{self.seed}-{self.digest}")


@dataclass(frozen=True)
class ComparisonPlan:
    """All cells in the order in which they are run: all tasks and variants with the first seed, then with the next.

    `is_choice` if the variants are alternative settings of a method, among which a user has to choose.
    """

    recipe: str
    tasks: tuple[Task, ...]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    is_choice: bool
    notes: tuple[str, ...]

    @property
    def reference(self) -> Variant:
        """The variant with which the others are compared."""
        return self.variants[0]

    @property
    def dataset(self) -> str:
        """The name of the data set."""
        return self.cells[0].config.data.name

    @property
    def select(self) -> str:
        """The score by which one evaluation of each run is selected."""
        return self.cells[0].config.track.select

    @property
    def varied_keys(self) -> tuple[str, ...]:
        """The keys of all series of values."""
        return tuple(dict.fromkeys(variant.varied[0] for variant in self.variants if variant.varied))


def plan_comparison(
    recipe: str | None,
    overrides: Iterable[str] = (),
    *,
    methods: Sequence[str] = (),
    targets: Sequence[str] = (),
    sources: SourceGrouping = "all",
    seeds: Sequence[int] = DEFAULT_SEEDS,
    ablate: bool = False,
    vary: Sequence[str] = (),
    require_files: bool = True,
) -> ComparisonPlan:
    """Return all cells, after checking everything that can be checked before a run.

    Parameters
    ----------
    methods
        Names of methods, or ``all``; the default depends on `ablate` and `vary`.
    targets
        Domains, or ``all`` available ones; default the recipe's target.
    sources
        All other domains together, each alone, or both kinds of task.
    ablate
        Compare the full method with itself without one ingredient at a time, and without all.
    vary
        Texts such as ``align.gamma=0.001,0.01``: one value of one key at a time.
    require_files
        Check the files of the data set, which are on this machine, and the samples of all clients.
    """
    given = _read_settings(recipe, list(overrides), targets)
    variants, notes = find_variants(given, methods, ablate, vary)
    data = load_config(None, {**given, **variants[0].settings}).data
    tasks, missing = find_tasks(data, targets, sources, require_files)
    seeds = tuple(dict.fromkeys(seeds))
    cells = _cells(given, tasks, variants, seeds, require_files)
    name = Path(recipe).stem if recipe else "defaults"
    return ComparisonPlan(name, tasks, variants, seeds, cells, ablate or bool(vary), (*notes, *missing))


def _read_settings(recipe: str | None, overrides: list[str], targets: Sequence[str]) -> Settings:
    """Return what recipe and call set, by sections; with `targets`, without a target."""
    for key in ("method", "seed"):
        if any(text.startswith(f"{key}=") for text in overrides):
            raise ValueError(f"{key} cannot be set in a comparison; use {OPTIONS[key]}")
    given = read_given(recipe, overrides)
    return read_given(None, {**given, "data.target": ""}) if targets else given


def _cells(
    given: Settings,
    tasks: tuple[Task, ...],
    variants: tuple[Variant, ...],
    seeds: tuple[int, ...],
    require_files: bool,
) -> tuple[Cell, ...]:
    for seed in seeds:
        load_config(None, {"seed": seed})
    configs = _resolve_configs(given, tasks, variants, require_files)
    cells = []
    for seed in seeds:
        for task in tasks:
            for variant in variants:
                config = configs[task, variant.name].model_copy(update={"seed": seed})
                cells.append(Cell(task, variant, seed, config, config.digest))
    _check_varied_keys(cells)
    return tuple(cells)


def _resolve_configs(
    given: Settings, tasks: Sequence[Task], variants: Sequence[Variant], require_files: bool
) -> dict[tuple[Task, str], Config]:
    """Return the configuration of every task and variant; those with the same files are checked for them once."""
    configs, checked = {}, set()
    for task in tasks:
        for variant in variants:
            domains = {"data.target": task.target, "data.sources": task.sources}
            config = resolve_config(None, {**given, **variant.settings, **domains})
            configs[task, variant.name] = config
            pooling = METHODS.find(config.method).pooling
            files = (config.data.model_dump_json(), config.model.weights, pooling)
            if require_files and files not in checked:
                check_files(config)
                checked.add(files)
    return configs


def _check_varied_keys(cells: Sequence[Cell]) -> None:
    """Refuse to vary a key that does not affect the digest, and therefore no result."""
    by_digest: dict[str, Cell] = {}
    for cell in cells:
        first = by_digest.setdefault(cell.digest, cell)
        varied, before = cell.variant.varied, first.variant.varied
        if varied and before and varied[0] == before[0] and varied[1] != before[1]:
            raise ValueError(f"--vary {varied[0]}: this key does not affect results; vary another key")


def _as_file_name(text: str) -> str:
    return re.sub(r"[^\w.,=+-]+", "_", text)[:MAX_NAME_LENGTH]
