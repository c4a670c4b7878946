"""Checks of the samples of all clients before a run; no image is decoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrf.config.registry import DATASETS, METHODS
from fedrf.config.schema import Config, DataConfig
from fedrf.data.domains import oracle_halves, select_samples, share_out, sources_and_target
from fedrf.data.samples import Samples


def check_clients(config: Config, domains: Sequence[str] | None = None) -> None:
    """Raise a `ValueError` if a client would have too few samples, a class that is not known, or no labels.

    Only clients of these domains are checked; by default all. If reading a domain takes longer than listing files, or
    corrupt images are left out, only its size is checked.
    """
    data, seed = config.data, config.seed
    sources, target = sources_and_target(data)
    for domain in dict.fromkeys((*sources, target) if domains is None else domains):
        samples = DATASETS.find(data.name).outline(data, domain)
        is_known = samples is not None and not data.skip_corrupt
        used = data if is_known else _split_evenly(data)
        samples = _of_expected_size(data, domain) if samples is None else samples
        if samples is None:
            continue
        shares = share_out(used, domain, select_samples(used, domain, samples), seed)
        if domain == target and is_known and METHODS.find(config.method).pooling == "oracle":
            oracle_halves(shares[target], seed)


def _split_evenly(data: DataConfig) -> DataConfig:
    """Return settings under which every client has enough samples if that is possible at all; none is decoded."""
    kind = "none" if data.partition == "none" else "even"
    return data.model_copy(update={"partition": kind, "imbalance": 1, "missing_classes": 0, "skip_corrupt": False})


def _of_expected_size(data: DataConfig, domain: str) -> Samples | None:
    """Return samples without values, as many as a complete domain has; None if that is unknown."""
    sizes = DATASETS.find(data.name).expected(data, domain)
    return Samples.without_values(max(sizes), np.zeros(max(sizes), dtype=np.int64)) if sizes else None
