"""Checks of a data set before training: which samples it has, and which client gets which."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedrf.config.loader import load_config
from fedrf.config.registry import DATASETS
from fedrf.config.schema import Config, DataConfig
from fedrf.data.dataset import data_root
from fedrf.data.domains import (
    class_names,
    clients_of,
    load_domain,
    num_classes,
    sources_and_target,
    split_domain,
)
from fedrf.data.samples import Samples

# Wraps the results of decoding the samples of a domain, whose name and number of samples are given, to show progress.
Track = Callable[[Iterable[str], str, int], Iterable[str]]


@dataclass(frozen=True)
class DomainCheck:
    """The result for one domain.

    Attributes
    ----------
    expected
        Numbers of samples that a complete domain can have.
    counts
        Samples of each class; None if there are no labels.
    error
        Why the domain cannot be loaded.
    corrupt
        A line for each image that cannot be decoded.
    """

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
    """The samples that one client would have."""

    name: str
    samples: int
    counts: tuple[int, ...] | None


@dataclass(frozen=True)
class DataReport:
    """The result for a data set.

    Attributes
    ----------
    problem
        Why the domains cannot be used together.
    note
        The partition and the target, or an assumption of the check.
    clients
        The share of each client, if there is a partition.
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
        """Whether there are domains, all are complete and intact, and they can be used together."""
        return bool(self.domains) and not self.problem and all(domain.status == "ok" for domain in self.domains)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"ok": self.ok, **asdict(self)}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def check_dataset(
    name: str,
    overrides: Iterable[str] = (),
    root: str | None = None,
    decode: bool = False,
    track: Track = lambda results, domain, count: results,
) -> DataReport:
    """Load the domains of a data set, count their classes, and split the sources if there is a partition.

    Parameters
    ----------
    name
        The name of the data set.
    overrides
        Texts such as ``data.partition=even``; only ``seed`` and ``data.*``.
    root
        Folder of the data sets, instead of ``data.root`` and ``$FEDRF_DATA``.
    decode
        Decode every image.
    track
        Shows the progress of decoding.
    """
    config, domains, note = _read_request(name, list(overrides), root)
    split = config.data.partition != "none"
    checks: list[DomainCheck] = []
    shares: dict[str, ClientShare] = {}
    for domain in domains:
        check, samples = _load(config.data, domain)
        if samples is not None and decode:
            corrupt = tuple(text for text in track(samples.decoding_errors(), domain, len(samples)) if text)
            check = replace(check, status="corrupt" if corrupt else "ok", corrupt=corrupt)
        if samples is not None and split:
            shares |= _shares(config, domain, samples)
        checks.append(check)
    sources, target = clients_of(config) if split else ((), "")
    clients = tuple(shares[client] for client in (*sources, target) if client in shares)
    loaded = [check.name for check in checks if check.samples]
    classes = class_names(config.data) if loaded else ()  # some data sets read them from the files of a domain
    problem = _conflict(config.data, loaded)
    return DataReport(name, _text(data_root(config.data.root)), classes, tuple(checks), problem, note, clients)


def _read_request(name: str, overrides: list[str], root: str | None) -> tuple[Config, tuple[str, ...], str]:
    """Return the configuration, the domains to check, and a note about them."""
    keys = [text.partition("=")[0] for text in overrides]
    _check_keys(keys)
    given = [f"data.name={name}", *overrides]
    given += [f"data.root={root}"] if root else []
    has_target = "data.target" in keys
    config = load_config(None, given if has_target else [*given, "data.target=''"])
    data, dataset = config.data, DATASETS.find(name)
    if dataset.folders:
        dataset.home(data)  # raises an error about the call if there is no data root
    known, split = dataset.domains(data), data.partition != "none"
    complete = data if has_target else data.model_copy(update={"target": _assumed_target(data, known)})
    config = config.model_copy(update={"data": complete if split else data})
    if not (has_target or split or data.sources):
        note = "data.target is not given: all domains are checked as sources" if dataset.user_defined else ""
        return _with_classes(config), known, note
    sources, target = sources_and_target(complete)
    domains = (*sources, target) if has_target or split else sources
    note = _describe_partition(config, has_target) if split else ""
    return _with_classes(config), tuple(dict.fromkeys(domains)), note


def _with_classes(config: Config) -> Config:
    """Read the classes of the user's files once, instead of once for each domain."""
    if not DATASETS.find(config.data.name).user_defined:
        return config
    with suppress(ValueError):  # `_load` reports it
        data = config.data.model_copy(update={"classes": class_names(config.data)})
        return config.model_copy(update={"data": data})
    return config


def _check_keys(keys: Iterable[str]) -> None:
    allowed = ["seed", *(f"data.{key}" for key in DataConfig.model_fields if key != "name")]
    for key in keys:
        if key not in allowed:
            raise ValueError(f"{key!r} is not a key of a data check; allowed: {', '.join(allowed)}")


def _has_default_target(data: DataConfig) -> bool:
    return bool(data.name == DataConfig.model_fields["name"].default)


def _assumed_target(data: DataConfig, known: tuple[str, ...]) -> str:
    """Return the target if none is given: the default of a run, or the last domain that is not a source."""
    if _has_default_target(data):
        return str(DataConfig.model_fields["target"].default)
    others = [domain for domain in known if domain not in (data.sources or ())]
    return (others or known or ("",))[-1]


def _describe_partition(config: Config, has_target: bool) -> str:
    data = config.data
    skew = f", data.concentration={data.concentration:g}"
    details = {"dirichlet": skew, "size": skew, "shards": f", data.shards={data.shards}"}.get(data.partition, "")
    split = f"data.partition={data.partition}{details}, data.clients={data.clients} for each source, seed={config.seed}"
    example = "" if has_target else " by default" if _has_default_target(data) else ", as an example: set data.target"
    return f"{split}; the target is {data.target}{example}"


def _load(data: DataConfig, domain: str) -> tuple[DomainCheck, Samples | None]:
    dataset = DATASETS.find(data.name)
    check = DomainCheck(domain, "missing", dataset.expected(data, domain))
    begin = time.perf_counter()
    try:
        check = replace(check, where=_text(dataset.locate(data, domain)), status="wrong")
        samples = load_domain(data, domain)
        counts = _counts(samples, num_classes(data))
    except (ValueError, OSError) as error:
        return replace(check, error=str(error), seconds=time.perf_counter() - begin), None
    seconds = time.perf_counter() - begin
    check = replace(check, status="ok", samples=len(samples), skipped=samples.skipped, counts=counts, seconds=seconds)
    return check, samples


def _shares(config: Config, domain: str, samples: Samples) -> dict[str, ClientShare]:
    """Return the clients among which a domain is split, with their shares."""
    parts = split_domain(config.data, domain, samples, config.seed).items()
    classes = num_classes(config.data)
    return {client: ClientShare(client, len(part), _counts(part, classes)) for client, part in parts}


def _counts(samples: Samples, classes: int) -> tuple[int, ...] | None:
    labels = samples.labels
    return None if labels is None else tuple(np.bincount(labels, minlength=classes).tolist())


def _conflict(data: DataConfig, domains: Sequence[str]) -> str:
    """Return why these domains cannot be used together, or an empty string."""
    try:
        DATASETS.find(data.name).check_together(data, domains)
    except ValueError as error:
        return str(error)
    return ""
