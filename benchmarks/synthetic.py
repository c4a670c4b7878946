"""Clients with synthetic data, for benchmarks; as a program, prints a line when the first round has been completed.

It does not import torch, because the driver of a run does not: the import would count as start-up time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from fedrf.config.loader import load_config
from fedrf.config.schema import Config
from fedrf.data.content import Arrays
from fedrf.data.samples import Samples
from fedrf.federation.status import Status
from fedrf.ownership import Fence, Owner
from fedrf.runtime.base import Federation
from fedrf.runtime.local import LocalFederation
from fedrf.runtime.ray import ClientActor, RayFederation, RaySession

SOURCES, TARGET = ("a", "b", "c", "d"), "t"
CLIENTS = (*SOURCES, TARGET)
ROUNDS = 60
SIZES = {"0.8 MB": (1000, 100), "6.4 MB": (4000, 200)}
COLUMNS, SAMPLES = 256, 1000


def load_synthetic(config: Any, name: str) -> Samples:
    """Return samples of ten clusters, shifted a little for each domain; replaces `load_samples`."""
    import torch

    generator = torch.Generator().manual_seed(ord(name))
    centres = torch.randn(10, COLUMNS, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(10, (SAMPLES,), generator=generator)
    noise, shift = torch.randn(SAMPLES, COLUMNS, generator=generator), torch.randn(COLUMNS, generator=generator)
    return Samples.all_of(Arrays((centres[labels] + noise + 0.3 * shift).numpy()), labels.numpy())


class SyntheticActor(ClientActor):
    """A process for clients with synthetic data."""

    def __init__(self) -> None:
        super().__init__()
        import fedrf.federation.worker

        fedrf.federation.worker.load_samples = load_synthetic


class SyntheticSession(RaySession):
    """A session whose actors run clients with synthetic data."""

    actor_class = SyntheticActor


def make_config(size: str, **keys: Any) -> Config:
    """Return the configuration for a size of W; `train__rounds=2` sets train.rounds."""
    num_features, dim = SIZES[size]
    defaults = {
        "method": "fedrf-plus",
        "model.extractor": "identity",
        "model.num_features": num_features,
        "model.dim": dim,
        "model.sigma": 1.0,
        "train.rounds": ROUNDS,
        "federation.aligner_interval": 1,  # W is sent in every round
        "adapt.when": "never",
        "track.evaluate_every": 10**6,
        "federation.checkpoint_seconds": 10**6,
    }
    return load_config(None, defaults | {key.replace("__", "."): value for key, value in keys.items()})


def new_fence() -> Fence:
    """Return what allows writing to a new folder."""
    return Owner.claim(Path(mkdtemp())).fence


def start(federation: Federation, clients: Sequence[str] = CLIENTS) -> None:
    """Start the clients of a federation."""
    for name in clients:
        federation.call("admit", name, 1)
        federation.start(name, 1, None)


def finish(federation: Federation, clients: Sequence[str] = CLIENTS) -> Status:
    """Run a federation to the end and return its state then."""
    start(federation, clients)
    running = set(clients)
    while running:
        for ended in federation.wait(5.0):
            if ended.error:
                raise ended.error
            running.discard(ended.client)
    status: Status = federation.call("poll", 0)
    federation.close()
    return status


def main() -> None:
    """Start a federation and print a line when a client has completed the first round, then one for each line read.

    The argument is the number of clients in an actor, or 0 for threads without Ray.
    """
    each = int(sys.argv[1])
    config = make_config("0.8 MB", resources__clients_per_actor=max(1, each), train__rounds=200_000)
    with ExitStack() as stack:
        if each:
            session = stack.enter_context(SyntheticSession())
            federation: Federation = RayFederation(session, config, SOURCES, TARGET, new_fence(), None)
        else:
            import fedrf.federation.worker

            fedrf.federation.worker.load_samples = load_synthetic
            federation = LocalFederation(config, SOURCES, TARGET, new_fence(), None)
        start(federation)
        while max(federation.call("poll", 0).rounds.values()) < 1:
            time.sleep(0.02)
        print("first round", flush=True)
        sys.stdin.readline()
        federation.call("stop")
        federation.close()


if __name__ == "__main__":
    main()
