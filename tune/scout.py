"""What is measured before the first trial: where γ matters and how far apart samples are, without pooling any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrf.experiment import run
from fedrf.runtime import RaySession
from tune.space import Measured, varied

# One round, for its warm start: the clients solve RF-TCA together, and the coordinator sees the spectrum.
SHORT = {
    "train.rounds": 1,
    "align.warm_start": "subspace",
    "adapt.when": "never",
    "federation.mode": "sync",
    "federation.classifier_interval": 1,
    "federation.prediction": "average",
    "model.sigma": "median",
    "track.wandb": "disabled",
    "track.tensorboard": False,
}


def measure(given: Mapping[str, Any], folder: Path, session: RaySession) -> Measured:
    """Run a federation just far enough to know the ranges; also fills the cache of backbone features for all trials."""
    start: dict[str, Any] = {"resume": folder} if (folder / "config.yaml").exists() else {"out": folder}
    overrides = () if "resume" in start else varied(given, SHORT).model_dump(mode="json")
    measured = run(None, overrides, session=session, **start).summary["measured"]
    session.release()
    return Measured(measured["sigma"], tuple(measured["informative_gamma"]))
