"""The cost of many clients on one machine, and how many messages a coordinator answers in a second.

8 to 1,000 logical clients have parts of the digits (`data.partition=dirichlet`) and run as fibers of two processes. Six
sources take part in each round. `python -m benchmarks.many_clients` prints the figures; it takes about ten minutes.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

import numpy as np
import psutil
import ray

import fedrf
from benchmarks.rows import report
from fedrf.config.loader import load_config
from fedrf.config.schema import Config
from fedrf.data.domains import clients_of
from fedrf.experiment.results import RunFolder
from fedrf.federation.checkpoints import CoordinatorFiles
from fedrf.federation.coordinator import Coordinator
from fedrf.ownership import Owner
from fedrf.protocol.envelope import Envelope
from fedrf.protocol.messages import Greeting, MeanEmbedding
from fedrf.protocol.wire import pack_call
from fedrf.runtime.ray import RaySession
from fedrf.runtime.ray.actors import CoordinatorActor

DOMAINS = ("rendered", "textured", "street")
CLIENTS = {8: 1, 64: 3, 256: 3, 1000: 3}  # clients in all, of which one is the target: domains that are split
SAMPLE, ROUNDS, PROCESSES = 6, 60, 2
WARM_UP = 5  # rounds that are not measured
LARGEST_RATIO, LARGEST_MEMORY = "<= 1.5", "<= 8"  # of costs of a client and round; GB
SENDERS, CALLS = 16, 100  # clients of a coordinator that only answers, and their rounds
NUM_FEATURES = {"8 KB": 1000, "100 KB": 12_500}  # N; a mean embedding has 2N numbers of 4 bytes
WATCH_SECONDS = 0.5


def main() -> None:
    """Report what a client costs with 8 to 1,000 of them, and how many calls a coordinator answers."""
    costs, peak = {}, 0.0
    with RaySession() as session:
        for count in CLIENTS:
            figures = run_clients(count, session)
            costs[count], peak = figures["cost"], figures["memory"]
            report(f"{count} clients: a client and round", figures["cost"], "ms")
            report(f"{count} clients: start of a client", figures["start"], "ms")
            report(f"{count} clients: end of a client", figures["end"], "ms")
            report(f"{count} clients: memory of all processes", figures["memory"], "GB")
        sampled = {count: cost for count, cost in costs.items() if count > min(CLIENTS)}
        ratio = max(sampled.values()) / min(sampled.values())
        name = f"a client and round, {min(sampled)} to {max(sampled)} clients: largest to smallest"
        report(name, ratio, "x", bar=LARGEST_RATIO)
        report(f"memory with {max(CLIENTS)} clients", peak, "GB", bar=LARGEST_MEMORY)
        for size in NUM_FEATURES:
            report(f"coordinator, {size}, in one process", asyncio.run(messages_in_process(size)), "1/s")
            report(f"coordinator, {size}, as an actor", messages_of_actor(size), "1/s")


# Many clients


def make_config(count: int) -> Config:
    """Return the configuration of a run with so many clients, of which one is the target."""
    domains = DOMAINS[: CLIENTS[count]]
    each = (count - 1) // len(domains)
    settings = {
        "method": "fedrf-plus",
        "federation.mode": "sync",
        "federation.participants": SAMPLE,
        "data.sources": domains,
        "data.partition": "dirichlet",
        "data.clients": each,
        "model.num_features": 100,
        "model.dim": 16,
        "model.sigma": 1.0,
        "model.sharing": "frozen",
        "train.rounds": ROUNDS,
        "train.batch_size": 16,
        "adapt.when": "never",
        "track.evaluate_every": 10**6,
        "federation.checkpoint_seconds": 10**6,
        "resources.accelerator": "cpu",
        "resources.clients_per_actor": math.ceil((each * len(domains) + 1) / PROCESSES),
    }
    return load_config(None, settings)


def run_clients(count: int, session: RaySession) -> dict[str, float]:
    """Return the milliseconds of a client and round, of the start and of the end of a client, and the memory in GB."""
    config = make_config(count)
    sources, target = clients_of(config)
    start_processes(session, (*sources, target), config)
    folder, began, times = Path(mkdtemp()), time.perf_counter(), list[tuple[int, float]]()

    def observe(rows: list[dict[str, Any]]) -> bool:
        times.extend((int(figures["round"]), time.perf_counter()) for figures in rows if figures["client"] == target)
        return False

    try:
        with peak_memory() as peak:
            fedrf.run(None, config.model_dump(mode="json"), out=folder / "run", session=session, observe=observe)
        ended = time.perf_counter()
        rows = [line for line in RunFolder(folder / "run").rows() if line["client"] == target and "seconds" in line]
    finally:
        shutil.rmtree(folder)
    first, last = times[0][1], max(when for number, when in times if number <= ROUNDS)
    period = median(line["seconds"] for line in rows if line["round"] > WARM_UP)
    return {
        "cost": 1000 * period / (SAMPLE + 1),
        "start": 1000 * (first - began) / (len(sources) + 1),
        "end": 1000 * (ended - last) / (len(sources) + 1),
        "memory": peak[0],
    }


def start_processes(session: RaySession, names: Sequence[str], config: Config) -> None:
    """Start the processes of a run and wait until they have imported what they need."""
    pool = session.acquire(names, config.resources)
    ray.get([actor.where.remote() for actor in pool.actors.values()])
    session.give_back(pool)


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Measure the most memory, in GB, of this process and of all that it has started, with Ray's object store."""
    peak, ended = [memory()], threading.Event()

    def watch() -> None:
        while not ended.wait(WATCH_SECONDS):
            peak[0] = max(peak[0], memory())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def memory() -> float:
    """Return memory in GB; that which processes share is divided among them."""
    total, this = 0, psutil.Process()
    for process in (this, *this.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it has ended
            continue
    return total / 1e9


# Messages of a coordinator


def coordinator_config(size: str) -> Config:
    """Return the configuration of rounds in which each client sends a mean embedding, and nothing else."""
    settings = {
        "method": "fedrf-plus",
        "federation.mode": "sync",
        "model.num_features": NUM_FEATURES[size],
        "model.dim": 2,
        "model.sharing": "frozen",
        "train.rounds": CALLS + 1,
        "federation.aligner_interval": CALLS + 1,
        "federation.classifier_interval": "last",
        "federation.checkpoint_seconds": 10**6,
    }
    return load_config(None, settings)


def make_calls(name: str, size: str) -> tuple[bytes, list[bytes]]:
    """Return the greeting of a client and its calls for all rounds."""
    count = 2 * NUM_FEATURES[size]
    values = np.full(count, 0.5 / count**0.5, np.float32)
    greeting = pack_call("greet", name, 1, Greeting(name, 0, 1, 1.0, 0, 1, count, 0))
    envelopes = (
        Envelope(name, number, 1, "round", (MeanEmbedding(name, number, 1, values),)) for number in range(1, CALLS + 1)
    )
    return greeting, [pack_call("exchange", name, 1, envelope) for envelope in envelopes]


SOURCES, TARGET = tuple(f"source {number}" for number in range(1, SENDERS)), "target"


async def messages_in_process(size: str) -> float:
    """Return the calls that a coordinator answers in a second without Ray."""
    with new_files() as files:
        coordinator = Coordinator(coordinator_config(size), SOURCES, TARGET, files)
        calls = {name: make_calls(name, size) for name in (*SOURCES, TARGET)}
        for name in calls:
            await coordinator.admit(name, 1)
        await asyncio.gather(*(coordinator.call(greeting) for greeting, _ in calls.values()))
        began = time.perf_counter()
        for number in range(CALLS):
            await asyncio.gather(*(coordinator.call(contents[number]) for _, contents in calls.values()))
        return CALLS * SENDERS / (time.perf_counter() - began)


def messages_of_actor(size: str) -> float:
    """Return the calls that a coordinator answers in a second as an actor, from clients in two other processes."""
    with new_files() as files:
        actor: Any = ray.remote(CoordinatorActor).options(num_cpus=0)
        coordinator = actor.remote(coordinator_config(size), SOURCES, TARGET, files, None)
        names = (*SOURCES, TARGET)
        ray.get([coordinator.admit.remote(name, 1) for name in names])
        sender: Any = ray.remote(Sender).options(num_cpus=0)
        senders = [sender.remote(names[index::PROCESSES], size) for index in range(PROCESSES)]
        ray.get([sender.greet.remote(coordinator) for sender in senders])
        began = time.perf_counter()
        ray.get([sender.send.remote(coordinator) for sender in senders])
        seconds = time.perf_counter() - began
        for process in (coordinator, *senders):
            ray.kill(process)
        return CALLS * SENDERS / seconds


class Sender:
    """A process that makes the calls of several clients, without computing anything."""

    def __init__(self, names: Sequence[str], size: str) -> None:
        self.calls = [make_calls(name, size) for name in names]

    async def greet(self, coordinator: Any) -> None:
        """Let all clients greet."""
        await asyncio.gather(*(coordinator.call.remote(greeting) for greeting, _ in self.calls))

    async def send(self, coordinator: Any) -> None:
        """Make the calls of all rounds."""
        for number in range(CALLS):
            await asyncio.gather(*(coordinator.call.remote(contents[number]) for _, contents in self.calls))


@contextmanager
def new_files() -> Iterator[CoordinatorFiles]:
    folder = Path(mkdtemp())
    owner = Owner.claim(folder)
    try:
        yield CoordinatorFiles(folder, owner.fence)
    finally:
        owner.release()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
