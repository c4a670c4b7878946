"""One site: loads its own samples, keeps the target's labels away from its client, and runs it."""

from __future__ import annotations

import logging
import warnings

import torch

from fedrf.client import Client, Link, StoppedError
from fedrf.config import Config
from fedrf.data.domains import class_names, load_samples
from fedrf.data.samples import Samples
from fedrf.evaluator import Evaluator
from fedrf.place import Place
from fedrf.predictions import write_predictions


def run_client(config: Config, place: Place, link: Link, threads: int = 1, accelerator: str = "auto") -> None:
    """Run one client from beginning to end; at the target, leave predictions behind."""
    torch.set_num_threads(threads)
    # What Lightning has to say about hardware and loaders, it would say once for each client.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning.*")
    device = "cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu"
    try:
        client = Client(config, place, *_open(config, place, link), device)
        client.run(accelerator)
    except StoppedError:
        link("finish", place.name)
        return
    if place.name == place.target and client.probabilities is not None:
        # Loaded again: the names of files often tell the labels.
        names = load_samples(config.data, place.name, config.seed).names()
        write_predictions(place.run / "predictions.csv", names, class_names(config.data), client.probabilities)


def _open(config: Config, place: Place, link: Link) -> tuple[Samples, Link, Evaluator]:
    """Load the samples; the labels of the target go to the evaluator and nowhere else."""
    samples = load_samples(config.data, place.name, config.seed)
    if samples.skipped:
        link("note", place.name, f"{samples.skipped} corrupt images were left out")
    return samples if place.name != place.target else samples.without_labels(), link, Evaluator(samples.labels)
