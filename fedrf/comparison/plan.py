"""Which runs a comparison has: tasks × variants × seeds, all of them checked before the first is begun."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Literal

from fedrf.config.loader import load_config, read_given
from fedrf.config.presets import PRESETS
from fedrf.config.schema import Config, DataConfig, value_of
from fedrf.data.registry import DATASETS
from fedrf.experiment.run import check_files, settled_config

ALL = "all"
DEFAULT_SEEDS = (0, 1, 2)
FULL, BARE = "fedrf-plus", "fedrf-tca"  # with every ingredient, and with none
DEFAULT_METHODS = (FULL, BARE, "source-only", "fedavg")
OPTIONS = {"method": "--methods", "seed": "--seeds", "data.target": "--targets", "data.sources": "--sources"}
LONGEST = 80  # characters of a folder's name
SourceKind = Literal["all", "each", "both"]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Labelled domains and an unlabelled one; `together` where the sources are all that there could be."""

    sources: tuple[str, ...]
    target: str
    together: bool

    @property
    def label(self) -> str:
        """What a column is called."""
        return f"→ {self.target}" if self.together else f"{', '.join(self.sources)} → {self.target}"

    @property
    def name(self) -> str:
        """Both sides, whatever they are."""
        return f"{', '.join(self.sources)} → {self.target}"


@dataclass(frozen=True)
class Variant:
    """One way to do it; `knob` is the key and value that it stands for in a series of values."""

    name: str
    settings: Settings
    knob: tuple[str, Any] | None = None

    @property
    def method(self) -> str:
        """The method whose settings were perhaps changed."""
        return str(self.settings["method"])


@dataclass(frozen=True)
class Cell:
    """One run of the comparison; cells with the same digest are one run."""

    task: Task
    variant: Variant
    seed: int
    config: Config
    digest: str

    @property
    def folder(self) -> Path:
        """Where its run directory is made, within the comparison's folder."""
        task = f"{'+'.join(self.task.sources)}-to-{self.task.target}"
        return Path("runs", _as_file_name(task), _as_file_name(self.variant.name), f"seed-{self.seed}-{self.digest}")


@dataclass(frozen=True)
class Plan:
    """All cells, in the order in which they are run: the first seed of everything first.

    `is_choice` where the variants are settings between which somebody would have to choose.
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
        """The variant that the others are held against."""
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
    def knobs(self) -> tuple[str, ...]:
        """The keys that are varied."""
        return tuple(dict.fromkeys(variant.knob[0] for variant in self.variants if variant.knob))


def make_plan(
    recipe: str | None,
    overrides: Iterable[str] = (),
    *,
    methods: Sequence[str] = (),
    targets: Sequence[str] = (),
    sources: SourceKind = "all",
    seeds: Sequence[int] = DEFAULT_SEEDS,
    ablate: bool = False,
    vary: Sequence[str] = (),
    look: bool = True,
) -> Plan:
    """Find all cells, and check whatever can be checked before a run.

    Parameters
    ----------
    methods
        Names of presets, or ``all``. Default a few; with `vary`, and beside an ablation, what makes sense there.
    targets
        Domains, or ``all`` that are there; default the recipe's.
    sources
        All other domains together, each alone, or both kinds of task.
    ablate
        Compare fedrf-plus with itself without one ingredient at a time, and without all.
    vary
        Texts such as ``align.gamma=0.001,0.01``: one value of one key at a time.
    look
        Look for the files of the data set on this machine.
    """
    texts = list(overrides)
    for key in ("method", "seed"):
        if any(text.startswith(f"{key}=") for text in texts):
            raise ValueError(f"{key} is what a comparison varies: use {OPTIONS[key]}")
    if ablate and vary:
        raise ValueError("--ablate and --vary are two comparisons: ask for one at a time")
    given = read_given(recipe, texts)
    if targets:
        given = read_given(None, {**given, "data.target": ""})  # which need not be named twice
    named = _methods(methods)
    variants, notes = _variants(given, named, ablate, vary)
    data = load_config(None, {**given, **variants[0].settings}).data
    tasks, missing = _tasks(data, targets, sources, look)
    seeds = tuple(dict.fromkeys(seeds))
    for seed in seeds:
        load_config(None, {"seed": seed})
    configs = _settled(given, tasks, variants, look)
    cells = []
    for seed in seeds:
        for task in tasks:
            for variant in variants:
                config = configs[task, variant.name].model_copy(update={"seed": seed})
                cells.append(Cell(task, variant, seed, config, config.digest))
    _check_knobs(cells)
    name = Path(recipe).stem if recipe else "defaults"
    return Plan(name, tasks, variants, seeds, tuple(cells), ablate or bool(vary), (*notes, *missing))


def _methods(wanted: Sequence[str]) -> tuple[str, ...]:
    for name in wanted:
        if name not in (*PRESETS, ALL):
            raise ValueError(f"--methods: {name!r} is no method; allowed: {', '.join(PRESETS)}, {ALL}")
    return tuple(PRESETS) if ALL in wanted else tuple(dict.fromkeys(wanted))


def _variants(
    given: Settings, methods: tuple[str, ...], ablate: bool, vary: Sequence[str]
) -> tuple[tuple[Variant, ...], list[str]]:
    """Return the variants, and what should be said about them."""
    if vary:
        return _series(given, methods or (FULL,), vary), []
    variants = _ablations(given) if ablate else ()
    plain = methods if ablate else methods or DEFAULT_METHODS
    plain = tuple(name for name in plain if name not in {variant.name for variant in variants})
    notes = [note for name in plain for note in _not_its_own(given, name)]
    return (*variants, *(Variant(name, {"method": name}) for name in plain)), notes


def _not_its_own(given: Settings, method: str) -> Iterable[str]:
    """Tell where recipe or call take the place of what makes the method: a complete file does so everywhere."""
    for key, own in PRESETS[method].items():
        section, _, name = key.partition(".")
        used = given.get(section, {}).get(name, own) if isinstance(given.get(section), Mapping) else own
        if used != own:
            yield f"{method} has {key}={used} from the recipe or call instead of its own {own}"


def _ablations(given: Settings) -> tuple[Variant, ...]:
    """Return the whole, the whole without each ingredient, and what is left without any.

    An ingredient that another one needs goes with that one; the variant's name says so.
    """
    full = {"method": FULL}
    config = load_config(None, {**given, **full})
    off = {key: value for key, value in PRESETS[BARE].items() if value_of(config, key) != value}
    variants = [Variant(FULL, full)]
    for key in off:
        without = _without(given, full, off, key)
        gone = " and ".join(f"{one}={shown(value_of(config, one))}" for one in without)
        variants.append(Variant(f"without {gone}", {**full, **without}))
    return (*variants, Variant(f"all off ({BARE})", {"method": BARE, **PRESETS[BARE]}))


def _without(given: Settings, full: Settings, off: Settings, key: str) -> Settings:
    complaints = []
    for other in (key, *(one for one in off if one != key)):
        settings = {one: off[one] for one in dict.fromkeys((key, other))}
        try:
            load_config(None, {**given, **full, **settings})
            return settings
        except ValueError as error:
            complaints.append(str(error))
    raise ValueError(f"--ablate: {FULL} cannot be without {key}: {complaints[0]}")


def _series(given: Settings, methods: tuple[str, ...], vary: Sequence[str]) -> tuple[Variant, ...]:
    variants: dict[str, Variant] = {}
    for method in methods:
        for text in vary:
            key, equals, values = text.partition("=")
            if not equals or not values:
                raise ValueError(f"--vary takes section.key=value,value,…; got {text!r}")
            if key in OPTIONS:
                raise ValueError(f"--vary {key}: that is what {OPTIONS[key]} is for")
            if key not in {one for one, *_ in Config.describe()}:
                raise ValueError(f"--vary {key}: no such key; `fedrf run --keys` lists them")
            for one in re.split(r",(?![^\[{]*[\]}])", values):  # a comma in brackets belongs to the value
                value = reduce(getitem, key.split("."), read_given(None, [f"{key}={one}"]))
                settings = {"method": method, key: value}
                settled = value_of(load_config(None, {**given, **settings}), key)
                name = f"{key}={shown(settled)}" if len(methods) == 1 else f"{method} {key}={shown(settled)}"
                variants.setdefault(name, Variant(name, settings, (key, settled)))
    return tuple(variants.values())


def _check_knobs(cells: Sequence[Cell]) -> None:
    """Refuse to vary a key that no result depends on."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(cell.digest, cell)
        knob, before = cell.variant.knob, other.variant.knob
        if knob and before and knob[0] == before[0] and knob[1] != before[1]:
            raise ValueError(f"--vary {knob[0]}: it changes no result, only where or how a run is done")


def _tasks(
    data: DataConfig, targets: Sequence[str], kind: SourceKind, look: bool
) -> tuple[tuple[Task, ...], list[str]]:
    """Return the tasks, and what is missing."""
    there, missing = _domains(data, look) if ALL in targets or not data.sources else ((), ())
    wanted = there if ALL in targets else tuple(dict.fromkeys(targets)) or (data.target,)
    tasks = []
    for target in wanted:
        pool = data.sources or there
        others = pool if data.partition != "none" and data.sources else tuple(one for one in pool if one != target)
        if not others:
            raise ValueError(f"data.target={target!r}: no other domain is a source for it; data.sources names {pool}")
        if kind != "each":
            tasks.append(Task(others, target, True))
        if kind != "all":
            tasks += [Task((one,), target, len(others) == 1) for one in others]
    lost = [f"{data.name}: left out, because not there: {', '.join(missing)}"] if missing else []
    return tuple(dict.fromkeys(tasks)), lost


def _domains(data: DataConfig, look: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the domains that are there, and those that are not; what only a cluster can see is taken for granted."""
    dataset = DATASETS[data.name]
    known, missing = dataset.domains(data), {}
    for domain in known if look else ():
        try:
            dataset.locate(data, domain)
        except ValueError as error:
            missing[domain] = error
    if missing and len(missing) == len(known):
        raise missing[known[0]]
    return tuple(one for one in known if one not in missing), tuple(missing)


def _settled(
    given: Settings, tasks: Sequence[Task], variants: Sequence[Variant], look: bool
) -> dict[tuple[Task, str], Config]:
    """Return the configuration of every task and variant; files are looked for once for each that differs in them."""
    configs, looked = {}, set()
    for task in tasks:
        for variant in variants:
            place = {"data.target": task.target, "data.sources": task.sources}
            config = settled_config(None, {**given, **variant.settings, **place})
            configs[task, variant.name] = config
            files = config.data.model_dump_json() + config.model.weights
            if look and files not in looked:
                check_files(config)
                looked.add(files)
    return configs


def shown(value: Any) -> str:
    """Write a value for people."""
    if isinstance(value, float):
        return f"{value:g}"
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _as_file_name(text: str) -> str:
    return re.sub(r"[^\w.,=+-]+", "_", text)[:LONGEST]
