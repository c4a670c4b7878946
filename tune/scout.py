"""What is measured before the first trial: where γ matters and how far apart samples are, without pooling any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrf.experiment.run import run_on
from fedrf.runtime.ray import RaySession
from tune.space import Measured, varied

# One round, for its warm start: the clients solve RF-TCA together, and the coordinator sees the spectrum.
SHORT = {
    "train.rounds": 1,
    "align.warm_start": "subspace",
    "adapt.when": "never",
    "federation.mode": "sync",
    "federation.classifier_interval": 1,
    "federation.prediction": "average",
    "federation.messages": "same/same/same",
    "track.wandb": "disabled",
    "track.tensorboard": False,
}


def measure(given: Mapping[str, Any], varies_sigma: bool, folder: Path, session: RaySession) -> Measured:
    """Run a federation just far enough to know the ranges; also fills the cache of backbone features for all trials.

    Where σ does not vary, γ is measured at the recipe's own σ.
    """
    short = SHORT | ({"model.sigma": "median"} if varies_sigma else {})
    result = run_on(varied(given, short), folder, session=session)
    session.stop_idle()
    if not result.finished:
        raise KeyboardInterrupt
    measured = result.summary["measured"]
    return Measured(measured["sigma"], tuple(measured["informative_gamma"]))
