"""One site: loads its own samples, keeps the target's labels away from its client, and runs it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch

from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.schema import Config
from fedrf.data.registry import DATASETS, class_names, load_samples, oracle_halves
from fedrf.data.samples import ImageFiles, Samples
from fedrf.federation.client import Client, Link, StoppedError
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.predictions import write_predictions


def run_client(config: Config, place: ClientInfo, link: Link, threads: int = 1, accelerator: str = "auto") -> None:
    """Run one client from beginning to end; at the target, leave predictions behind."""
    torch.set_num_threads(threads)
    # What Lightning has to say about hardware and loaders, it would say once for each client.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning.*")
    device = "cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu"
    try:
        samples, evaluator, names, foreign = _open(config, place, link)
        client = Client(config, place, samples, link, evaluator, device, foreign)
        del samples, foreign  # the paths of a target's files often tell their labels
        client.run(accelerator)
    except StoppedError:
        link("finish", place.name)
        return
    if place.name == place.target and client.probabilities is not None:
        write_predictions(place.run / "predictions.csv", names(), class_names(config.data), client.probabilities)


class _Opened(NamedTuple):
    samples: Samples
    evaluator: Evaluator
    names: Callable[[], list[str]]
    foreign: Samples | None = None


def _open(config: Config, place: ClientInfo, link: Link) -> _Opened:
    """Load the samples; the labels of the target go to the evaluator and nowhere else."""
    samples = load_samples(config.data, place.name, config.seed)
    for note in samples.notes:
        link("note", note)
    if samples.labels is None:
        link("note", f"{place.name}: no labels, so nobody knows the accuracy; what was predicted is in predictions.csv")
    pooled, is_target = config.data.pooled, place.name == place.target
    shown = samples.without_labels() if is_target else samples
    scored = oracle_halves(samples, config.seed)[1] if is_target and pooled == "oracle" else None
    if is_target and pooled == "oracle":
        link("note", "oracle: trained with the labels of half of the target's samples, and scored on the other half")
    foreign = None
    if pooled != "none" and not is_target:
        if pooled == "all":
            foreign = load_samples(config.data, place.target, config.seed).without_labels()
        link("move", place.name, sum(one.nbytes for one in (samples, foreign) if one is not None))
    return _Opened(shown, Evaluator(samples.labels, scored), _naming(config, place, samples), foreign)


def _naming(config: Config, place: ClientInfo, samples: Samples) -> Callable[[], list[str]]:
    """Return a function that names the samples, without holding the paths of files until then."""
    if not isinstance(samples.content, ImageFiles):
        names = samples.names()
        return lambda: names
    rows, count = samples.rows, len(samples.content)

    def read() -> list[str]:
        content = DATASETS[config.data.name].load(config.data, place.name).content
        # Numbers, should files have come or gone meanwhile.
        return [content.name(row) if len(content) == count else str(row) for row in rows]

    return read
