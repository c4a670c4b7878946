"""Looks at data sets before anything is trained on them: which are there, what is in them, and who would hold what."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from fedrf.config.loader import load_config
from fedrf.config.registry import DATASETS
from fedrf.config.schema import Config, DataConfig
from fedrf.data.dataset import data_root
from fedrf.data.domains import (
    class_names,
    clients_of,
    load_domain,
    num_classes,
    share_out,
    sources_and_target,
)
from fedrf.data.samples import Samples

FEW_CLASSES = 12  # more do not make columns
MANY_FILES = 20  # corrupt ones that are listed
MARKS = {"ok": "[green]ok[/]", "missing": "[yellow]missing[/]", "wrong": "[red]wrong[/]", "corrupt": "[red]corrupt[/]"}


@dataclass(frozen=True)
class Holding:
    """What there is of one data set: the file or folder of each domain `found`, and why others are `missing`."""

    name: str
    about: str
    origin: str
    domains: tuple[str, ...]
    found: dict[str, str | None]
    missing: dict[str, str]


@dataclass(frozen=True)
class DomainCheck:
    """One domain: `counts` are its samples by class, None without labels; `error` and `corrupt` say what is wrong."""

    name: str
    status: Literal["ok", "missing", "wrong", "corrupt"]
    expected: tuple[int, ...] = ()
    where: str | None = None
    samples: int | None = None
    skipped: int = 0
    counts: tuple[int, ...] | None = None
    seconds: float = 0.0
    error: str = ""
    corrupt: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClientShare:
    """What one client would hold."""

    name: str
    samples: int
    counts: tuple[int, ...] | None


@dataclass(frozen=True)
class Report:
    """All that was found out.

    `problem` says why domains do not fit together, `note` how the `clients` share them where there is a partition.
    """

    name: str
    root: str | None
    classes: tuple[str, ...]
    domains: tuple[DomainCheck, ...]
    problem: str = ""
    note: str = ""
    clients: tuple[ClientShare, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are domains, all complete and sound, that fit together."""
        return bool(self.domains) and not self.problem and all(domain.status == "ok" for domain in self.domains)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"ok": self.ok, **asdict(self)}


def survey(root: str | Path | None = None) -> list[Holding]:
    """Look for every data set below the data root, without reading any."""
    return [_holding(name, data_root(root)) for name in DATASETS.names()]


def _holding(name: str, root: Path | None) -> Holding:
    dataset = DATASETS.find(name)
    config = DataConfig.model_validate({"name": name, "root": root and str(root), "target": ""})
    domains = () if dataset.user_defined else dataset.domains(config)
    found: dict[str, str | None] = {}
    missing: dict[str, str] = {}
    for domain in domains:
        try:
            found[domain] = _text(dataset.locate(config, domain))
        except ValueError as error:
            missing[domain] = str(error)
    return Holding(name, dataset.about, dataset.origin, domains, found, missing)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def check(name: str, overrides: Iterable[str] = (), root: str | None = None, decode: bool = False) -> Report:
    """Load domains, count their classes, and share them out where there is a partition.

    Parameters
    ----------
    name
        Of the data set.
    overrides
        Texts such as ``data.partition=even``; only ``seed`` and ``data.*``.
    root
        Folder of the data sets, instead of ``data.root`` and ``$FEDRF_DATA``.
    decode
        Decode every image file, with a progress bar on standard error.
    """
    config, domains, note = _configured(name, list(overrides), root)
    data = config.data
    if DATASETS.find(name).user_defined:
        with suppress(ValueError):  # every domain says so itself
            data = data.model_copy(update={"classes": class_names(data)})  # once, and not for each domain anew
    split = data.partition != "none"
    checks: list[DomainCheck] = []
    clients: dict[str, ClientShare] = {}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (decode and console.is_terminal)) as progress:
        for domain in domains:
            result, samples = _load(data, domain)
            if samples is not None and decode:
                corrupt = _corrupt(samples, domain, progress)
                result = replace(result, status="corrupt" if corrupt else "ok", corrupt=corrupt)
            if samples is not None and split:
                parts = share_out(data, domain, samples, config.seed).items()
                clients |= {
                    name: ClientShare(name, len(part), _counts(part, num_classes(data))) for name, part in parts
                }
            checks.append(result)
    sources, target = clients_of(config.model_copy(update={"data": data})) if split else ((), "")
    held = tuple(clients[client] for client in (*sources, target) if client in clients)
    # Some data sets tell their classes only where a domain is there.
    classes = class_names(data) if any(one.samples for one in checks) else ()
    problem = _together(data, [one.name for one in checks if one.samples])
    return Report(name, _text(data_root(data.root)), classes, tuple(checks), problem, note, held)


def _together(data: DataConfig, domains: Sequence[str]) -> str:
    try:
        DATASETS.find(data.name).check_together(data, domains)
    except ValueError as error:
        return str(error)
    return ""


def _configured(name: str, overrides: list[str], root: str | None) -> tuple[Config, tuple[str, ...], str]:
    """Return the configuration, the domains to look at, and what people should know about either."""
    keys = [text.partition("=")[0] for text in overrides]
    allowed = ["seed", *(f"data.{key}" for key in DataConfig.model_fields if key != "name")]
    for key in keys:
        if key not in allowed:
            raise ValueError(f"{key!r} is no key of a check; allowed: {', '.join(allowed)}")
    given = [f"data.name={json.dumps(name, ensure_ascii=False)}", *overrides]
    given += [f"data.root={root}"] if root else []
    named = "data.target" in keys
    config = load_config(None, given if named else [*given, "data.target=''"])
    data, dataset = config.data, DATASETS.find(name)
    if dataset.folders:
        dataset.home(data)  # without a root nothing is missing: the call is wrong
    known, split = dataset.domains(data), data.partition != "none"
    complete = data if named else data.model_copy(update={"target": _stand_in(data, known)})
    if split:
        config = config.model_copy(update={"data": complete})
    if not (named or split or data.sources):
        return (
            config,
            known,
            "data.target is not given: all domains are taken for sources" if dataset.user_defined else "",
        )
    sources, target = sources_and_target(complete)
    domains = (*sources, target) if named or split else sources
    return config, tuple(dict.fromkeys(domains)), _in_words(config, named) if split else ""


def _stand_in(data: DataConfig, known: tuple[str, ...]) -> str:
    """Return the target where none is given: that of a run, or the last domain that is no source."""
    if data.name == "digits":
        return str(DataConfig.model_fields["target"].default)
    apart = [domain for domain in known if domain not in (data.sources or ())]
    return (apart or known or ("",))[-1]


def _in_words(config: Config, named: bool) -> str:
    data = config.data
    skew = f", data.concentration={data.concentration:g}"
    how = {"dirichlet": skew, "size": skew, "shards": f", data.shards={data.shards}"}.get(data.partition, "")
    split = f"data.partition={data.partition}{how}, data.clients={data.clients} for each source, seed={config.seed}"
    example = "" if named else " by default" if data.name == "digits" else ", as an example: set data.target"
    return f"{split}; the target is {data.target}{example}"


def _load(data: DataConfig, domain: str) -> tuple[DomainCheck, Samples | None]:
    dataset = DATASETS.find(data.name)
    result = DomainCheck(domain, "missing", dataset.expected(data, domain))
    begin = time.perf_counter()
    try:
        result = replace(result, where=_text(dataset.locate(data, domain)), status="wrong")
        samples = load_domain(data, domain)
        counts = _counts(samples, num_classes(data))
    except (ValueError, OSError) as error:
        return replace(result, error=str(error), seconds=time.perf_counter() - begin), None
    seconds = time.perf_counter() - begin
    result = replace(result, status="ok", samples=len(samples), skipped=samples.skipped, counts=counts, seconds=seconds)
    return result, samples


def _counts(samples: Samples, classes: int) -> tuple[int, ...] | None:
    labels = samples.labels
    return None if labels is None else tuple(np.bincount(labels, minlength=classes).tolist())


def _corrupt(samples: Samples, domain: str, progress: Progress) -> tuple[str, ...]:
    """Decode all images, and return what there is to say about those that cannot be."""
    said = progress.track(samples.complaints(), len(samples), description=domain)
    return tuple(text for text in said if text)


def print_survey(holdings: Sequence[Holding], root: Path | None, console: Console) -> None:
    """Print what is there as a table, and where to get what is not."""
    where = f"Data root: {root}" if root else "No data root: pass --data-root, or set FEDRF_DATA"
    console.print(where + "\n", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("data.name", "what it is", "domains", "found"):
        table.add_column(column, no_wrap=column == "data.name")
    for holding in holdings:
        table.add_row(*map(escape, (holding.name, holding.about, *_domains_in_words(holding))))
    console.print(table)
    missing = [holding for holding in holdings if holding.missing]
    console.print("\nWhere to get what is missing:" if missing else "")
    for holding in missing:
        # Not in the table, which would break addresses.
        console.print(f"{holding.name}: {holding.origin}", markup=False, soft_wrap=True)


def _domains_in_words(holding: Holding) -> tuple[str, str]:
    """Return the domains, and which of them are there."""
    if DATASETS.find(holding.name).user_defined:
        return "yours", "any folder: data.root=FOLDER"
    domains, found = ", ".join(holding.domains), ", ".join(holding.found)
    if holding.missing:
        return domains, f"{found}; missing: {', '.join(holding.missing)}" if found else "nothing"
    return domains, "all" if any(holding.found.values()) else "needs no files"


def print_report(report: Report, console: Console) -> None:
    """Print what was found out as tables."""
    table = Table(box=None, pad_edge=False)
    table.add_column("domain", no_wrap=True)
    table.add_column("status")
    for column in ("samples", "expected", "classes", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("file or folder", overflow="fold")
    for one in report.domains:
        table.add_row(*_domain_row(one, len(report.classes)))
    console.print(table if report.domains else f"{report.name}: no domains in {escape(str(report.root))}")
    if report.problem:
        console.print(report.problem, markup=False, soft_wrap=True)
    for one in report.domains:
        if one.error:
            console.print(one.error, markup=False, soft_wrap=True)
        for complaint in one.corrupt[:MANY_FILES]:
            console.print(complaint, markup=False, soft_wrap=True)
        if len(one.corrupt) > MANY_FILES:
            console.print(f"{len(one.corrupt) - MANY_FILES:,} more in {one.name}: --json has all", markup=False)
    if report.note:
        console.print(f"\n{report.note}", markup=False)
    loaded = [ClientShare(one.name, one.samples, one.counts) for one in report.domains if one.samples is not None]
    for counted in _count_tables(report.clients or loaded, report.classes, console.width):
        console.print()
        console.print(counted)


def _domain_row(one: DomainCheck, classes: int) -> list[str]:
    samples = "-" if one.samples is None else f"{one.samples:,}"
    present = "-" if one.samples is None else "no labels"
    if one.counts is not None:
        present = f"{np.count_nonzero(one.counts)} of {classes}"
    return [
        escape(one.name),
        MARKS[one.status],
        f"{samples}, {one.skipped} skipped" if one.skipped else samples,
        " or ".join(f"{number:,}" for number in one.expected) or "-",
        present,
        f"{one.seconds:.2f}",
        escape(one.where or ("-" if one.error else "needs no files")),
    ]


def _count_tables(holders: Sequence[ClientShare], classes: Sequence[str], width: int) -> list[Table]:
    """Return tables of samples by class: a column for each class if that can be read, else a row for each."""
    if not holders:
        return []
    columns = [[one.name, *_cells(one.counts, len(classes)), f"{one.samples:,}"] for one in holders]
    heads = ["", *classes, "total"]
    first, *others = [list(row) for row in zip(heads, *columns, strict=True)]
    across = _side_by_side(first, others, width)
    return across if len(classes) <= FEW_CLASSES and len(across) == 1 else _side_by_side(heads, columns, width)


def _cells(counts: tuple[int, ...] | None, num_classes: int) -> list[str]:
    # Dots leave what is there to be seen.
    return ["?"] * num_classes if counts is None else [f"{count:,}" if count else "·" for count in counts]


def _side_by_side(first: list[str], columns: list[list[str]], width: int) -> list[Table]:
    """Put columns after the first one, as many to a table as there is room for."""
    blocks: list[list[list[str]]] = []
    room = 0
    for column in columns:
        needed = 2 + max(map(len, column))
        if needed > room:
            blocks.append([first])
            room = width - max(map(len, first))
        blocks[-1].append(column)
        room -= needed
    tables = []
    for block in blocks:
        table = Table(box=None, pad_edge=False)
        for index, column in enumerate(block):
            table.add_column(Text(column[0]), justify="right" if index else "left", no_wrap=True)
        for cells in zip(*(column[1:] for column in block), strict=True):
            table.add_row(*map(Text, cells))
        tables.append(table)
    return tables
