"""Measure the ranges of γ and σ before the first trial, without pooling samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrf.experiment.run import run_in
from fedrf.runtime.ray import RaySession
from tune.space import MeasuredRanges, config_at

# One round, for its warm start: the clients solve RF-TCA together, and the coordinator computes the spectrum.
SHORT_RUN = {
    "train.rounds": 1,
    "align.warm_start": "subspace",
    "adapt.when": "never",
    "federation.mode": "sync",
    "federation.classifier_interval": 1,
    "federation.prediction": "average",
    "federation.embeddings_from": "participants",
    "federation.aligners_from": "participants",
    "federation.classifiers_from": "participants",
    "track.wandb": "disabled",
    "track.tensorboard": False,
}


def measure_ranges(given: Mapping[str, Any], varies_sigma: bool, folder: Path, session: RaySession) -> MeasuredRanges:
    """Run one round of a federation and return the measured ranges; this also fills the cache of backbone features.

    If σ does not vary, γ is measured at the recipe's σ.
    """
    settings = SHORT_RUN | ({"model.sigma": "median"} if varies_sigma else {})
    result = run_in(config_at(given, settings), folder, session=session)
    session.stop_idle()
    if not result.finished:
        raise KeyboardInterrupt
    measured = result.summary["measured"]
    return MeasuredRanges(measured["sigma"], tuple(measured["informative_gamma"]))
