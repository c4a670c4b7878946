"""The domains and clients of a run, and the samples of each client.

The driver uses this module too, so it does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from weakref import WeakKeyDictionary, WeakValueDictionary
from zlib import crc32

import numpy as np

from fedrf.config.registry import DATASETS, METHODS
from fedrf.config.schema import Config, DataConfig
from fedrf.data.content import Arrays, Content
from fedrf.data.dataset import data_root
from fedrf.data.imbalance import missing_classes, thinned
from fedrf.data.partition import Integers, partition
from fedrf.data.samples import Samples
from fedrf.data.validation import hold_out

# The content of domains whose clients are starting, and how it is split; without content, which it would keep alive.
_LOADED: WeakValueDictionary[tuple[DataConfig, str, int], Content] = WeakValueDictionary()
_SPLIT: WeakKeyDictionary[Content, dict[str, Samples]] = WeakKeyDictionary()
_SPLITTING = Lock()
NOTHING = Arrays(np.empty((0, 0), dtype=np.float32))
POOL = "pool"  # the client that has the samples of all sources, for references that are not federated


def resolve_data(config: DataConfig) -> DataConfig:
    """Replace defaults that depend on this machine by their values: root, sources and classes."""
    root = data_root(config.root)
    resolved = config.model_copy(update={"root": str(root.resolve())} if root else {})
    resolved = resolved.model_copy(update={"sources": sources_and_target(resolved)[0]})
    dataset = DATASETS.find(resolved.name)
    if dataset.user_defined and resolved.classes is None:
        resolved = resolved.model_copy(update={"classes": dataset.classes(resolved)})
    return resolved


def found_here(config: DataConfig) -> DataConfig:
    """Return the settings of a built-in data set with $FEDRF_DATA as its root, if this machine lacks the old one."""
    here = data_root()
    if config.root is None or here is None or Path(config.root).is_dir() or DATASETS.find(config.name).user_defined:
        return config
    return config.model_copy(update={"root": str(here.resolve())})


def sources_and_target(config: DataConfig) -> tuple[tuple[str, ...], str]:
    """Return the source domains and the target; a `ValueError` names a domain that does not exist."""
    given = None if config.sources is None else (*config.sources, config.target)
    dataset = DATASETS.find(config.name)
    # If all names are given, the driver does not need access to the data.
    domains = given if given and config.classes else dataset.domains(config)
    sources = config.sources or tuple(name for name in domains if name != config.target)
    for key, name in [("data.target", config.target), *(("data.sources", name) for name in sources)]:
        if name not in domains:
            raise ValueError(f"{key}={name!r}: the domains of {config.name} are {', '.join(domains) or 'none'}")
    if not sources:
        raise ValueError(f"data.target={config.target!r} is the only domain of {config.name}: there is no source")
    return sources, config.target


def locate_all(config: DataConfig) -> None:
    """Raise a `ValueError` if the files of a domain are missing; it lists the paths that were tried."""
    dataset, (sources, target) = DATASETS.find(config.name), sources_and_target(config)
    locate(config, (*sources, target))
    dataset.check_together(config, (*sources, target))


def locate(config: DataConfig, domains: Sequence[str]) -> None:
    """Raise a `ValueError` if the files of one of these domains are missing."""
    for domain in domains:
        DATASETS.find(config.name).locate(config, domain)


def clients_of(config: Config) -> tuple[tuple[str, ...], str]:
    """Return the names of the source clients and of the target client.

    A client has the name of its domain; if a source is split, `domain:1`, `domain:2` and so on. If the method pools
    data, there is one client besides the target.
    """
    data = config.data
    sources, target = sources_and_target(data)
    if METHODS.find(config.method).pooling != "none":
        if target == POOL:
            raise ValueError(f"data.target={target!r} is also the name of the client with pooled samples: rename it")
        return (POOL,), target
    if data.partition == "none":
        return sources, target
    clients = tuple(client for domain in sources for client in _parts(data, domain))
    if target in clients:
        raise ValueError(f"data.target={target!r} is also the name of a part of a source: rename one of them")
    return clients, target


def _parts(config: DataConfig, domain: str) -> list[str]:
    return [f"{domain}:{part + 1}" for part in range(config.clients)]


def num_classes(config: DataConfig) -> int:
    """Return the number of classes."""
    return len(config.classes or ()) or DATASETS.find(config.name).num_classes(config)


def class_names(config: DataConfig) -> tuple[str, ...]:
    """Return the names of the classes, in the order of the labels."""
    return config.classes or DATASETS.find(config.name).classes(config)


def load_samples(config: Config, client: str) -> Samples:
    """Return the samples of one client, with their labels, in an order that the seed determines."""
    pooling = METHODS.find(config.method).pooling
    if client == POOL and pooling != "none":
        return _pooled_samples(config, pooling)
    return _own_samples(config.data, client, config.seed)


def domain_of(config: DataConfig, client: str) -> str:
    """Return the domain of a client that has samples of one."""
    return client if client == config.target or config.partition == "none" else client.rpartition(":")[0]


def domains_of(config: Config, client: str) -> tuple[str, ...]:
    """Return the domains whose files a client reads."""
    pooling, (sources, target) = METHODS.find(config.method).pooling, sources_and_target(config.data)
    if pooling == "none" or client != POOL:
        return (domain_of(config.data, client),)
    return {"oracle": (target,), "all": (*sources, target)}.get(pooling, sources)


def _own_samples(config: DataConfig, client: str, seed: int) -> Samples:
    domain = domain_of(config, client)
    samples = _share_of(config, client, domain, seed)
    samples = samples.standardised() if config.scale == "standard" else samples
    # Files are often sorted by class: without a shuffle, the position of a sample would tell its label.
    return samples.take(np.random.RandomState([seed, crc32(domain.encode()), 0x5F1E]).permutation(len(samples)))


def _share_of(config: DataConfig, client: str, domain: str, seed: int) -> Samples:
    """Return the samples of one client; clients of a process that start together load and split a domain once."""
    if config.partition == "none":
        return share_out(config, domain, load_domain(config, domain), seed)[client]
    with _SPLITTING:
        content = _LOADED.get(key := (config, domain, seed))
        if content is None:
            whole = load_domain(config, domain)
            content = _LOADED[key] = whole.content
            shares = share_out(config, domain, whole, seed)
            _SPLIT[content] = {name: replace(share, content=NOTHING) for name, share in shares.items()}
        return replace(_SPLIT[content][client], content=content)


def share_out(config: DataConfig, domain: str, samples: Samples, seed: int) -> dict[str, Samples]:
    """Return the samples of each client of a domain, after the removals of `data.imbalance`."""
    shares = split_domain(config, domain, _unbalanced(config, domain, samples, seed), seed)
    if samples.labels is None and shares.keys() - {config.target}:
        raise ValueError(f"{domain} is a source and has no labels")
    return shares


def _unbalanced(config: DataConfig, domain: str, samples: Samples, seed: int) -> Samples:
    """Remove samples, if `data.imbalance` or `data.missing_classes` says so."""
    labels = samples.labels
    if labels is None or (config.imbalance == 1 and not config.missing_classes):
        return samples
    classes = num_classes(config)
    kept = thinned(labels, classes, config.imbalance, np.random.RandomState([seed, crc32(domain.encode()), 0x1B11]))
    sources = sources_and_target(config)[0]
    if config.missing_classes and domain in sources:
        random, position = np.random.RandomState([seed, 0x3A7E]), sources.index(domain)
        missing = missing_classes(position, config.missing_classes, classes, random)
        kept = kept[~np.isin(labels[kept], missing)]
    if len(kept) < 2:
        raise ValueError(f"data.missing_classes={config.missing_classes} leaves {len(kept)} samples of {domain}")
    return samples.take(kept)


def _pooled_samples(config: Config, pooling: str) -> Samples:
    """Return the training samples of the client with pooled samples: all sources, or half of the target."""
    sources, target = sources_and_target(config.data)
    if pooling == "oracle":
        samples = _own_samples(config.data, target, config.seed)
        return samples.take(oracle_halves(samples, config.seed)[0])
    return Samples.joined([_own_samples(config.data, domain, config.seed) for domain in sources])


def oracle_halves(samples: Samples, seed: int) -> tuple[Integers, Integers]:
    """Return the positions of the target samples that an oracle is trained on, and of those that it is scored on."""
    if samples.labels is None:
        raise ValueError("an oracle needs labels of the target, which has none")
    return hold_out(samples.labels, 0.5, np.random.RandomState([seed, 0x0AC1E]))


def split_domain(config: DataConfig, domain: str, samples: Samples, seed: int) -> dict[str, Samples]:
    """Return the samples of each client of a domain: one client, unless a source is split by `data.partition`."""
    sources, target = sources_and_target(config)
    if config.partition == "none" or domain not in sources:
        return {domain: samples}
    if samples.labels is None:
        raise ValueError(f"data.partition={config.partition} needs labels, and {domain} has none")
    clients = _parts(config, domain) + [target] * (domain == target)
    random = np.random.RandomState([seed, crc32(domain.encode())])
    parts = partition(config.partition, samples.labels, len(clients), random, config.concentration, config.shards)
    return {client: samples.take(part) for client, part in zip(clients, parts, strict=True)}


def load_domain(config: DataConfig, domain: str) -> Samples:
    """Return the samples of a domain: at most `data.samples`, without corrupt files if `data.skip_corrupt` is set."""
    return select_samples(config, domain, DATASETS.find(config.name).load(config, domain))


def select_samples(config: DataConfig, domain: str, samples: Samples) -> Samples:
    """Return the samples that are used of those that a domain has; a `ValueError` if there are too few."""
    dataset = DATASETS.find(config.name)
    count, expected = len(samples) + samples.skipped, dataset.expected(config, domain)
    if expected and count not in expected:
        samples = replace(samples, notes=(f"{domain}: {count:,} of {expected[0]:,} samples are present",))
    if config.samples is not None and config.samples < len(samples):
        chosen = np.random.RandomState(0).permutation(len(samples))[: config.samples]
        samples = samples.take(np.sort(chosen))
    samples = samples.decodable() if config.skip_corrupt else samples
    if samples.skipped:
        samples = replace(
            samples, notes=(*samples.notes, f"{domain}: {samples.skipped:,} corrupt images were left out")
        )
    if len(samples) < 2:
        raise ValueError(f"{domain} has {len(samples)} samples; a client needs at least 2")
    return samples
