"""One site: loads its own domain, keeps the target's labels away from its client, and runs it."""

from __future__ import annotations

import logging
import warnings

import torch

from fedrf.client import Client, Link, Scorer
from fedrf.config import Config
from fedrf.data.domains import load_domain
from fedrf.place import Place


def run_client(config: Config, place: Place, link: Link, threads: int = 1, accelerator: str = "auto") -> None:
    """Run one client from beginning to end."""
    torch.set_num_threads(threads)
    # What Lightning has to say about hardware and loaders, it would say once for each client.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning.*")
    domain = load_domain(config.data, place.name)
    labels = None if place.name == place.target else domain.labels
    Client(config, place, domain.inputs, labels, link, Scorer(domain.labels)).run(accelerator)
