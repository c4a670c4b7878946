"""The time of a round in which clients compute nothing: the exchange alone, beside bare actor calls and Flower.

Four sources and a target send a model of 8 KB or 6.4 MB and load the average. "Bare actor calls" is the least that this
needs with Ray: five actors send bytes to a sixth, which answers all of them when it has heard of each, with bytes that it
puts into shared memory once. Flower's simulation has five clients that return the parameters they were sent; it is
installed into an environment of its own. All run one after the other on the same machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from benchmarks.synthetic import SOURCES, TARGET, make_config, new_fence
from fedrf.config.schema import Config
from fedrf.federation.channel import Channel
from fedrf.runtime.ray import ClientActor, RayFederation, RaySession
from fedrf.runtime.ray.actors import SHARED_BYTES, _link

CLIENTS = (*SOURCES, TARGET)
SIZES = {"8 KB": (100, 10), "6.4 MB": (4000, 200)}  # N and m: W has 8·N·m bytes
ROUNDS, WARM_UP = 150, 30
FLOWER, FLOWER_PROGRAM = "flwr[simulation]==1.41.*", Path(__file__).with_name("flower_rounds.py")
FLOWER_ROUNDS = 40
AIMS = {"8 KB": 10.0, "6.4 MB": 6.0}
WORST_OVERHEAD = 2.0


class EmptyActor(ClientActor):
    """A client that exchanges messages and computes nothing."""

    def run(self, config: Any, info: Any, coordinator: Any, *_: Any) -> None:
        """Exchange Σℓ, W and C for some rounds."""
        import torch

        from fedrf.protocol.messages import Aligner, Classifier, MeanEmbedding

        config = Config.model_validate(config)
        rows, dim = 2 * config.model.num_features, config.model.dim
        channel = Channel(info, _link(coordinator), config.train.rounds)
        channel.greet(1.0, 1, features=rows, extractor=0)
        own, loaded = torch.zeros(rows), torch.zeros(rows, dim)
        parts = {Aligner: loaded, Classifier: torch.zeros(10 * (dim + 1))}
        times = []
        for number in range(1, config.train.rounds + 1):
            began = time.perf_counter()
            messages = [channel.message(MeanEmbedding, own, number)]
            if info.name != info.target and number > 1:
                messages += [channel.message(kind, values, number) for kind, values in parts.items()]
            reply = channel.exchange("round", number, messages)
            if "aligner" in reply.parts:
                loaded.copy_(torch.tensor(reply.parts["aligner"]))
            times.append(1000 * (time.perf_counter() - began))
            channel.progress.figures = {"seconds": times[-1]}
        channel.finish()


class EmptySession(RaySession):
    """A session whose actors compute nothing."""

    actor_class = EmptyActor


class Hub:
    """The sixth actor of the bare calls: answers all when it has heard of each."""

    def __init__(self) -> None:
        self._calls, self._answer = 0, asyncio.Event()
        self._shared: Any = None

    async def meet(self, content: bytes) -> Any:
        """Wait for the others; return bytes, or a reference to them if they are large."""
        import ray

        self._calls += 1
        event = self._answer
        if self._calls == len(CLIENTS):
            self._calls, self._answer = 0, asyncio.Event()
            self._shared = content if len(content) < SHARED_BYTES else ray.put(content)
            event.set()
        await event.wait()
        return self._shared


class Caller:
    """One of the five actors of the bare calls."""

    def run(self, hub: Any, size: int, rounds: int) -> list[float]:
        """Return the milliseconds of each call, with the answer in hand."""
        import ray

        content, times = os.urandom(size), []
        for _ in range(rounds):
            began = time.perf_counter()
            answer = ray.get(hub.meet.remote(content))
            if isinstance(answer, ray.ObjectRef):
                ray.get(answer)
            times.append(1000 * (time.perf_counter() - began))
        return times


def bare_calls(size: str) -> list[float]:
    """Return the milliseconds of rounds of bare actor calls."""
    import ray

    num_features, dim = SIZES[size]
    hub = ray.remote(Hub).options(num_cpus=0).remote()
    callers = [ray.remote(Caller).options(num_cpus=0).remote() for _ in CLIENTS]
    import psutil

    ps = lambda: {p.pid: sum(p.cpu_times()[:2]) for p in psutil.Process().children(recursive=True)}
    ray.get([caller.run.remote(hub, 8, 3) for caller in callers])
    A = ps()
    runs = ray.get([caller.run.remote(hub, 8 * num_features * dim, ROUNDS) for caller in callers])
    B = ps()
    global CPU
    CPU = 1000 * sum(B[k] - A.get(k, 0) for k in B) / ROUNDS
    for actor in (hub, *callers):
        ray.kill(actor)
    times: list[float] = np.mean(runs, axis=0).tolist()
    return times


def empty_rounds(session: RaySession, size: str, mode: str) -> list[float]:
    """Return the milliseconds of rounds of an empty model."""
    num_features, dim = SIZES[size]
    keys = {"model.num_features": num_features, "model.dim": dim, "train.rounds": ROUNDS, "federation.mode": mode}
    config = make_config("0.8 MB", **{key.replace(".", "__"): value for key, value in keys.items()})
    federation = RayFederation(session, config, SOURCES, TARGET, new_fence(), None)
    for name in CLIENTS:
        federation.call("admit", name, 1)
        federation.start(name, 1, None)
    running = set(CLIENTS)
    while running:
        for ended in federation.wait(5.0):
            if ended.error:
                raise ended.error
            running.discard(ended.client)
    rows = federation.call("poll", 0).rows
    federation.close()
    return [row["seconds"] for row in rows if "seconds" in row and row["client"] in SOURCES and row["round"] > WARM_UP]


def main() -> None:
    with EmptySession() as session:
        session.prepare(CLIENTS, make_config("0.8 MB").resources)
        for size in SIZES:
            bare = bare_calls(size)[WARM_UP:]
            print(size, "bare", np.percentile(bare, [50, 95]))
            for mode in ("sync", "async"):
                t = empty_rounds(session, size, mode)
                print(size, mode, np.percentile(t, [50, 95]), np.median(t) / np.median(bare), flush=True)


if __name__ == "__main__":
    main()
