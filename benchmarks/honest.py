"""Honest sources that are left out: there should be none, on any data set.

`python -m benchmarks.honest`, about twenty minutes on two cores; it needs the data sets in `$FEDRF_DATA`. It runs
`fedrf-oneshot` for every target and seeds 0, 1, 2, and `fedrf-plus` for seed 0 where whole domains are three sources,
without adaptation. It prints how many sources were left out, the least agreement of two sources, and the largest weight
as a multiple of the median.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

import fedrf
import fedrf.federation.closed_form
from fedrf.config.loader import load_config
from fedrf.config.registry import DATASETS
from fedrf.federation.state import State
from fedrf.protocol.class_statistics import factored
from fedrf.tca.consistency import agreements

DIGITS, SURF, OFFICE31 = "digits", "office-caltech10-surf", "office31"
PLAIN: dict[str, Any] = {}
HALVES, DIRICHLET = ({"data.partition": kind, "data.clients": 2} for kind in ("even", "dirichlet"))
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    (DIGITS, PLAIN),
    (SURF, PLAIN),
    (OFFICE31, PLAIN),
    ("digits-imbalanced", PLAIN),
    ("office-caltech10-surf-imbalanced", PLAIN),
    ("office31-imbalanced", PLAIN),
    ("office31-missing", PLAIN),
    (DIGITS, {"data.imbalance": 30}),
    (SURF, {"data.imbalance": 30}),
    (DIGITS, HALVES),
    (SURF, HALVES),
    (OFFICE31, HALVES),
    ("office31-missing", HALVES),
    (DIGITS, DIRICHLET),
    (SURF, DIRICHLET),
    ("office31-imbalanced", DIRICHLET),
    (DIGITS, {"data.partition": "shards", "data.clients": 3}),
)
SEEDS = (0, 1, 2)


def failures_of(recipe: str, keys: dict[str, Any]) -> tuple[list[str], dict[str, float], State | None]:
    """Run once; return who was left out, the weights of the sources, and the state of the coordinator."""
    states: list[State] = []
    consistent_sources = fedrf.federation.closed_form.consistent_sources

    def seen(state: State, sources: tuple[str, ...]) -> list[str]:
        states.append(state)
        return consistent_sources(state, sources)

    with TemporaryDirectory() as folder, patch.object(fedrf.federation.closed_form, "consistent_sources", seen):
        more = {"federation.mode": "sync", "adapt.when": "never"}
        summary = fedrf.run(recipe, keys | more, out=f"{folder}/run", local=True).summary
    weights: dict[str, float] = summary["measured"].get("source_weights", {})
    left_out = [failure for failure in summary["failures"] if failure.startswith("left out")]
    return left_out, weights, states[-1] if states else None


def report(recipe: str, keys: dict[str, Any]) -> None:
    """Print a line for a recipe with these settings, over all targets and seeds."""
    data = load_config(recipe).data
    left_out: list[str] = []
    matches, ratios, runs, clients = [], [], 0, 0
    for target in DATASETS.find(data.name).domains(data):
        for seed in SEEDS:
            chosen = keys | {"data.target": target, "seed": seed}
            failures, weights, state = failures_of(recipe, chosen)
            left_out, runs, clients = left_out + failures, runs + 1, len(weights)
            if state is not None:
                messages = [message for message in state.statistics.values() if message]
                pairs = agreements([factored(message).class_covariance for message in messages])
                matches.append(np.nanmin(pairs))
                ratios.append(max(weights.values()) / np.median(list(weights.values())))
            if clients > 2 and seed == 0 and "data.partition" not in keys:
                left_out += failures_of(recipe, chosen | {"method": "fedrf-plus"})[0]
    settings = " ".join(f"{key}={value}" for key, value in keys.items())
    print(
        f"| `{recipe}` {settings} | {clients} | {runs} | {len(left_out)} | {min(matches):.2f} | {max(ratios):.2f} |",
        flush=True,
    )
    for failure in left_out:
        print(failure, flush=True)


def main() -> None:
    print("| recipe | sources | runs | left out | least agreement | largest weight |")
    print("| --- | --- | --- | --- | --- | --- |")
    for recipe, keys in CASES:
        report(recipe, keys)


if __name__ == "__main__":
    main()
