"""What runs in a client's process: loads the client's samples, hides the target's labels, and runs the client."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from traceback import clear_frames
from typing import NamedTuple

import torch

from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.registry import DATASETS, METHODS
from fedrf.config.schema import Config
from fedrf.data.content import ImageFiles
from fedrf.data.domains import class_names, load_samples, oracle_halves
from fedrf.data.samples import Samples
from fedrf.federation.channel import Channel, Send, StoppedError
from fedrf.federation.client import Client
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.heartbeat import heartbeat
from fedrf.federation.liveness import pause_between_beats
from fedrf.federation.predictions import predictions_table
from fedrf.federation.storage import storage_of
from fedrf.models.arithmetic import arithmetic
from fedrf.models.devices import Device, choose_device


def run_client(
    config: Config,
    info: ClientInfo,
    send: Send,
    threads: int = 1,
    reserved_gpus: float | None = None,
    decoders: int | None = None,
    num_sharing: int = 1,
) -> None:
    """Run one client from beginning to end, which shows that it is alive; the target also writes its predictions.

    A process that the driver has excluded or replaced raises `SupersededError` as soon as it notices. The other
    parameters are those of `run_over`.
    """
    channel = Channel(info, send, config.train.rounds)
    with heartbeat(channel.beat, pause_between_beats(config.federation.deadline)):
        run_over(config, channel, threads, reserved_gpus, decoders, num_sharing)


def run_over(
    config: Config,
    channel: Channel,
    threads: int = 1,
    reserved_gpus: float | None = None,
    decoders: int | None = None,
    num_sharing: int = 1,
) -> None:
    """Run one client over a channel from beginning to end.

    Parameters
    ----------
    threads
        Number of threads that compute.
    reserved_gpus, num_sharing
        See `choose_device`.
    decoders
        Number of threads that decode images for a GPU; default as many as compute.
    """
    torch.set_num_threads(threads)
    # Lightning's hints about hardware and loaders would appear once for each client.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning.*")
    device = choose_device(config.resources, reserved_gpus, num_sharing)
    try:
        channel.place(*device.place)
        with arithmetic(config, device.torch, channel.note):
            _run(config, channel, device, threads if device.is_cpu else decoders or threads)
    except BaseException as error:
        clear_frames(error.__traceback__)  # they would keep the network as long as somebody keeps the error
        raise
    finally:
        device.release()


def _run(config: Config, channel: Channel, device: Device, decoders: int) -> None:
    info, storage = channel.info, storage_of(channel, config.track.storage)
    try:
        local = open_samples(config, channel)
        client = Client(
            config, channel, local.samples, local.evaluator, storage, device, local.target_samples, decoders
        )
        names, rows = local.names, local.samples.rows
        del local  # paths of the target's files often contain their labels
        client.run()
    except StoppedError:
        channel.finish()
        return
    if info.name == info.target and client.probabilities is not None:
        table = predictions_table(rows, names(), class_names(config.data), client.probabilities)
        storage.write("predictions.csv", table)


class OpenedSamples(NamedTuple):
    """What a client gets, and what is kept from it.

    Attributes
    ----------
    samples
        The client's samples; without labels at the target.
    evaluator
        Scores predictions, with labels that the client does not see.
    names
        Returns the names of the samples.
    target_samples
        The target's samples, without labels, for references that pool data.
    """

    samples: Samples
    evaluator: Evaluator
    names: Callable[[], list[str]]
    target_samples: Samples | None = None


def open_samples(config: Config, channel: Channel) -> OpenedSamples:
    """Load the samples of a client; only the evaluator gets the labels of the target."""
    info = channel.info
    samples = load_samples(config, info.name)
    for note in samples.notes:
        channel.note(note)
    if samples.labels is None:
        channel.note(f"{info.name}: no labels, so accuracy is unknown; predictions are in predictions.csv")
    pooling, names = METHODS.find(config.method).pooling, _names_of(config, info, samples)
    if info.name == info.target:
        scored = None
        if pooling == "oracle":
            scored = oracle_halves(samples, config.seed)[1]
            channel.note("oracle: trained with the labels of half of the target, and scored on the other half")
        return OpenedSamples(samples.without_labels(), Evaluator(samples.labels, scored), names)
    target_samples = None
    if pooling == "all":
        target_samples = load_samples(config, info.target).without_labels()
    if pooling != "none":
        moved = [part.nbytes for part in (samples, target_samples) if part is not None]
        channel.count_samples(sum(moved))
    return OpenedSamples(samples, Evaluator(samples.labels), names, target_samples)


def _names_of(config: Config, info: ClientInfo, samples: Samples) -> Callable[[], list[str]]:
    """Return a function that returns the names of the samples; until it is called, no paths of files are kept."""
    if not isinstance(samples.content, ImageFiles):
        names = samples.names()
        return lambda: names
    rows, count = samples.rows, len(samples.content)

    def read() -> list[str]:
        content = DATASETS.find(config.data.name).load(config.data, info.name).content
        # Row numbers, if files were added or removed meanwhile.
        return [content.name(row) if len(content) == count else str(row) for row in rows]

    return read
