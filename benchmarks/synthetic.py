"""Clients with data of their own, for measuring; as a program, says when the first round of six actors has begun.

Imports no torch, as a driver does not: that would be part of the start-up.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from fedrf.config.loader import load_config
from fedrf.config.schema import Config
from fedrf.data.samples import Arrays, Samples
from fedrf.runtime.ray import ClientActor, RayFederation, RaySession

SOURCES, TARGET = ("a", "b", "c", "d"), "t"
ROUNDS = 60
SIZES = {"0.8 MB": (1000, 100), "6.4 MB": (4000, 200)}
COLUMNS, SAMPLES = 256, 1000


def synthetic(config: Any, name: str, seed: int = 0) -> Samples:
    """Rows of ten clusters, moved a little for each domain."""
    import torch

    generator = torch.Generator().manual_seed(ord(name))
    centres = torch.randn(10, COLUMNS, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(10, (SAMPLES,), generator=generator)
    noise, shift = torch.randn(SAMPLES, COLUMNS, generator=generator), torch.randn(COLUMNS, generator=generator)
    return Samples.all_of(Arrays((centres[labels] + noise + 0.3 * shift).numpy()), labels.numpy())


class SyntheticActor(ClientActor):
    """A client that brings its own data."""

    def run(self, *arguments: Any) -> None:
        """Run one client."""
        import fedrf.federation.worker

        fedrf.federation.worker.load_samples = synthetic
        super().run(*arguments)


class SyntheticSession(RaySession):
    """Ray with such clients."""

    actor = SyntheticActor


def settings(size: str, **more: Any) -> Config:
    """Return the configuration for one size of W."""
    num_features, dim = SIZES[size]
    base = {
        "model.extractor": "identity",
        "model.num_features": num_features,
        "model.dim": dim,
        "model.sigma": 1.0,
        "train.rounds": ROUNDS,
        "federation.aligner_interval": 1,  # what the sizes are about
        "adapt.when": "never",
        "track.evaluate_every": 10**6,
        "federation.checkpoint_seconds": 10**6,
    }
    return load_config(None, base | {key.replace("__", "."): value for key, value in more.items()})


def main() -> None:
    """Start six actors and say when the first round has begun."""
    config = settings("0.8 MB", resources__clients_per_actor=int(sys.argv[1]), train__rounds=2)
    with SyntheticSession() as session:
        federation = RayFederation(session, config, SOURCES, TARGET, Path(mkdtemp()), False)
        for name in (*SOURCES, TARGET):
            federation.start(name, 1, None)
        while max(federation.call("poll", 0)["rounds"].values()) < 1:
            time.sleep(0.05)
        print("first round", flush=True)
        federation.close()


if __name__ == "__main__":
    main()
