"""Which data sets are below the data root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedrf.config.registry import DATASETS
from fedrf.config.schema import DataConfig
from fedrf.data.dataset import data_root


@dataclass(frozen=True)
class Availability:
    """Which domains of a data set are there.

    Attributes
    ----------
    origin
        Where to get the data set.
    found
        The file or folder of each domain that is there; None for domains that need no files.
    missing
        The reason for each domain that is not there.
    """

    name: str
    about: str
    origin: str
    domains: tuple[str, ...]
    found: dict[str, str | None]
    missing: dict[str, str]


def find_datasets(root: str | Path | None = None) -> list[Availability]:
    """Look for every data set below the data root, without reading any."""
    return [find_dataset(name, root) for name in DATASETS.names()]


def find_dataset(name: str, root: str | Path | None = None) -> Availability:
    """Look for the domains of one data set below the data root."""
    root = data_root(root)
    dataset, config = DATASETS.find(name), _config_of(name, root)
    found: dict[str, str | None] = {}
    missing: dict[str, str] = {}
    domains = known_domains(name, root)
    for domain in domains:
        try:
            found[domain] = str(path) if (path := dataset.locate(config, domain)) else None
        except ValueError as error:
            missing[domain] = str(error)
    return Availability(name, dataset.about, dataset.origin, domains, found, missing)


def known_domains(name: str, root: Path | None = None) -> tuple[str, ...]:
    """Return the domains of a data set; none if they are those of the user's files."""
    dataset = DATASETS.find(name)
    return () if dataset.user_defined else dataset.domains(_config_of(name, root))


def _config_of(name: str, root: Path | None) -> DataConfig:
    return DataConfig.model_validate({"name": name, "root": root and str(root), "target": ""})
