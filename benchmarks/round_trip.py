"""The time of a round in which clients compute nothing: the exchange alone, beside bare actor calls and Flower.

Four sources and a target exchange a model of 8 KB or 6.4 MB. "Bare actor calls" are the least that this needs with Ray:
five actors send bytes to a sixth, which answers all of them when it has heard of each, with bytes that it puts into
shared memory once. Flower's simulation has five clients that return the parameters they were sent; it is installed into
an environment of its own. All run one after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.rows import report
from benchmarks.synthetic import CLIENTS, SOURCES, TARGET, finish, make_config, new_fence
from fedrf.config.schema import Config
from fedrf.federation.channel import Channel
from fedrf.runtime.ray import ClientActor, RayFederation, RaySession
from fedrf.runtime.ray.actors import SHARED_BYTES, _link

SIZES = {"8 KB": (100, 10), "6.4 MB": (4000, 200)}  # N and m: W has 8·N·m bytes
ROUNDS, FLOWER_ROUNDS, WARM_UP = 230, 40, 30
AIMS = {"8 KB": ">= 10", "6.4 MB": ">= 6"}  # times as fast as Flower
FLOWER, FLOWER_PROGRAM = "flwr[simulation]==1.41.*", Path(__file__).with_name("flower_rounds.py")
FLOWER_SECONDS = 300.0


class EmptyActor(ClientActor):
    """A client that exchanges messages and computes nothing."""

    def run(self, config: Any, info: Any, coordinator: Any, *_: Any) -> None:
        """Exchange Σℓ, W and C."""
        import torch

        from fedrf.protocol.messages import Aligner, Classifier, MeanEmbedding

        config = Config.model_validate(config)
        rows, dim, rounds = 2 * config.model.num_features, config.model.dim, config.train.rounds
        channel = Channel(info, _link(coordinator), rounds)
        channel.greet(1.0, 1, features=rows, extractor=0)
        own, aligner, classifier = torch.zeros(rows), torch.zeros(rows, dim), torch.zeros(10 * (dim + 1))
        parts = {} if info.name == info.target else {Aligner: aligner, Classifier: classifier}
        for number in range(1, rounds + 1):
            began = perf_counter()
            # A Σℓ that has changed, so that it is sent again.
            messages = [channel.message(MeanEmbedding, own + number / rounds / rows, number)]
            messages += [channel.message(kind, values, number) for kind, values in parts.items() if number > 1]
            reply = channel.exchange("round", number, messages)
            if "aligner" in reply.parts:
                aligner.copy_(torch.tensor(reply.parts["aligner"]))
            channel.progress.figures = {"seconds": perf_counter() - began}
        channel.finish()


class EmptySession(RaySession):
    """A session whose actors compute nothing."""

    actor_class = EmptyActor


class Hub:
    """The sixth actor of the bare calls: answers all when it has heard of each."""

    def __init__(self) -> None:
        self._calls, self._all_called = 0, asyncio.Event()
        self._answer: Any = None

    async def meet(self, content: bytes) -> Any:
        """Wait for the others; return bytes, or a reference to them if they are large."""
        import ray

        self._calls += 1
        all_called = self._all_called
        if self._calls == len(CLIENTS):
            self._calls, self._all_called = 0, asyncio.Event()
            self._answer = content if len(content) < SHARED_BYTES else ray.put(content)
            all_called.set()
        await all_called.wait()
        return self._answer


class Caller:
    """One of the five actors of the bare calls."""

    def run(self, hub: Any, size: int) -> list[float]:
        """Return the milliseconds of each call, with the answer in hand."""
        import ray

        content, times = os.urandom(size), []
        for _ in range(ROUNDS):
            began = perf_counter()
            answer = ray.get(hub.meet.remote(content))
            if isinstance(answer, ray.ObjectRef):
                ray.get(answer)
            times.append(1000 * (perf_counter() - began))
        return times


def bare_calls(num_bytes: int) -> list[float]:
    """Return the milliseconds of rounds of bare actor calls."""
    import ray

    hub = ray.remote(Hub).options(num_cpus=0).remote()
    callers = [ray.remote(Caller).options(num_cpus=0).remote() for _ in CLIENTS]
    times = ray.get([caller.run.remote(hub, num_bytes) for caller in callers])
    for actor in (hub, *callers):
        ray.kill(actor)
    return [time for caller in times for time in caller[WARM_UP:]]


def empty_rounds(session: RaySession, size: str, mode: str) -> list[float]:
    """Return the milliseconds of rounds of an empty model."""
    num_features, dim = SIZES[size]
    keys = {"model__num_features": num_features, "model__dim": dim, "train__rounds": ROUNDS}
    config = make_config("0.8 MB", **keys, federation__mode=mode)
    rows = finish(RayFederation(session, config, SOURCES, TARGET, new_fence(), None)).rows
    measured = [row for row in rows if "seconds" in row and row["client"] in SOURCES and row["round"] > WARM_UP]
    return [1000 * row["seconds"] for row in measured]


class Flower:
    """Flower in an environment of its own; `problem` says why there is none."""

    def __init__(self, folder: str) -> None:
        self.python, self.problem = Path(folder) / "bin/python", ""
        venv.create(folder, with_pip=True)
        install = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", FLOWER]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            self.problem = (done.stderr.strip() or "pip failed").splitlines()[-1]

    def rounds(self, num_bytes: int) -> list[float]:
        """Return the milliseconds of rounds; none, with a line, if there is no Flower or it fails."""
        if not self.problem:
            command = [self.python, FLOWER_PROGRAM, str(num_bytes // 4), str(FLOWER_ROUNDS)]
            environment = os.environ | {"FLWR_TELEMETRY_ENABLED": "0"}
            keys: Any = {"capture_output": True, "text": True, "env": environment, "timeout": FLOWER_SECONDS}
            done = subprocess.run(command, **keys)
            if not done.returncode:
                times: list[float] = json.loads(done.stdout.splitlines()[-1])
                return times[2:]  # without the start of its processes
            self.problem = done.stderr.strip().splitlines()[-1]
        print(f"no comparison with Flower: {self.problem}")
        return []


def quantiles(times: list[float]) -> tuple[float, str]:
    """Return the median, and a remark with the 95th percentile."""
    half, most = np.percentile(times, [50, 95])
    return float(half), f"p95 {most:.3g} ms"


def main() -> None:
    """Report rounds of an empty model, bare calls and Flower."""
    with TemporaryDirectory() as folder, EmptySession() as session:
        flower = Flower(folder)
        session.prepare(CLIENTS, make_config("0.8 MB").resources)
        for size, (num_features, dim) in SIZES.items():
            num_bytes = 8 * num_features * dim
            bare, note = quantiles(bare_calls(num_bytes))
            report(f"{size}: bare actor calls", bare, "ms", note)
            theirs = flower.rounds(num_bytes)
            if theirs:
                report(f"{size}: Flower", quantiles(theirs)[0], "ms", quantiles(theirs)[1])
            for mode in ("sync", "async"):
                ours, note = quantiles(empty_rounds(session, size, mode))
                report(f"{size}: fedrf, {mode}", ours, "ms", note)
                report(f"{size}: fedrf, {mode} / bare actor calls", ours / bare, "x", bar="<= 2")
                if theirs:
                    report(f"{size}: Flower / fedrf, {mode}", quantiles(theirs)[0] / ours, "x", bar=AIMS[size])


if __name__ == "__main__":
    main()
