"""Domains by name: what a data set is made of, and the samples of one domain as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fedrf.config import DataConfig

if TYPE_CHECKING:
    from torch import Tensor

# Written out because loading needs torch, which the driver does without; a test keeps them equal.
DOMAINS = {"digits": ("handwritten", "rendered", "textured", "street")}
NUM_CLASSES = {"digits": 10}


class Domain(NamedTuple):
    """Samples of one domain."""

    inputs: Tensor
    labels: Tensor


def resolve_domains(config: DataConfig) -> tuple[tuple[str, ...], str]:
    """Return the sources and the target; a `ValueError` names what does not exist."""
    known = DOMAINS[config.name]
    sources = config.sources or tuple(name for name in known if name != config.target)
    for key, name in [("data.target", config.target), *(("data.sources", name) for name in sources)]:
        if name not in known:
            raise ValueError(f"{key}={name!r}: the domains of {config.name} are {', '.join(known)}")
    return sources, config.target


def load_domain(config: DataConfig, name: str) -> Domain:
    """Load one domain."""
    import torch

    from fedrf.data import digits

    inputs, labels = digits.load(name, config.samples)
    return Domain(torch.from_numpy(inputs), torch.from_numpy(labels))
