"""Speed of closed-form sweeps: the paper's γ × σ grid at three N, against a fit for each point.

`python -m benchmarks.sweep`, about a minute and a half. Office-Caltech10's SURF features, Amazon to Caltech, where
`$FEDRF_DATA` has them; else random rows of the same size. Neither side trains classifiers. On one thread: two wait for
each other whenever anything else runs on the machine, in these small problems for longer than they compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.rftca import interleaved, report, seconds
from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.loader import load_config
from fedrf.config.schema import Config
from fedrf.experiment.run import check_files, settled_config
from tune.closed_form import ClosedFormGrid, Pooled, load_pooled, walk

GRID = ClosedFormGrid()
SOME_SIGMAS = GRID.sigmas[::10]  # for the separate fits, which take long
NUM_SOURCE, NUM_TARGET, COLUMNS = 958, 1123, 800


def synthetic() -> Pooled:
    """Rows of norm 1 in ten clusters; the target is a little off."""
    rng = np.random.RandomState(0)
    labels = rng.randint(10, size=NUM_SOURCE + NUM_TARGET)
    rows = rng.randn(10, COLUMNS)[labels] + 2 * rng.randn(len(labels), COLUMNS)
    rows[NUM_SOURCE:] += 0.3 * rng.randn(COLUMNS)
    unit = torch.nn.functional.normalize(torch.from_numpy(rows).float())
    config: Config = load_config(None, {"model.dim": 100})
    return Pooled.of(config, unit, labels[:NUM_SOURCE], Evaluator(None))


def load() -> tuple[str, Pooled]:
    try:
        config = settled_config("office-caltech10-surf", {"data.sources": "amazon", "data.target": "caltech"})
        check_files(config)
    except ValueError:
        return "random rows", synthetic()
    return "Office-Caltech10 SURF", load_pooled(config)


def together(pooled: Pooled, num_features: int, sigmas: Sequence[float]) -> list[torch.Tensor]:
    """Return the aligned rows for every point, by a path along γ for each σ."""
    return [aligned for sigma in sigmas for aligned in walk(pooled, num_features, sigma, GRID.gammas).aligned]


def apart(pooled: Pooled, num_features: int, sigmas: Sequence[float]) -> list[torch.Tensor]:
    """Return the same by a fit for each point."""
    rows, aligned = pooled.rows.numpy(), []
    for sigma in sigmas:
        for gamma in GRID.gammas:
            estimator = pooled.estimator(num_features, sigma).set_params(gamma=gamma * pooled.gamma_unit)
            aligned.append(torch.from_numpy(estimator.fit_transform(rows, sample_domain=pooled.domain)))
    return aligned


def main() -> None:
    torch.set_num_threads(1)
    name, pooled = load()
    count, columns = pooled.rows.shape
    print(f"one thread; {name}: n = {count}, p = {columns}, m = {pooled.dim}")
    separate = shared = 0.0
    for size in GRID.num_features:
        works = [partial(work, pooled, size, SOME_SIGMAS) for work in (apart, together)]
        pairs = zip(*(work() for work in works), strict=True)
        difference = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
        report(f"N = {size}: largest difference of aligned rows, relative to the largest entry", difference, "<= 1e-4")
        times = interleaved(*works)
        report(
            f"N = {size}: {len(GRID.gammas)} fits for each of {len(SOME_SIGMAS)} σ / a path for each",
            times[0] / times[1],
        )
        separate, shared = separate + times[0], shared + times[1]
    report(
        f"a fit for each point / the sweep, all N, at {len(SOME_SIGMAS)} of the {len(GRID.sigmas)} σ",
        separate / shared,
        ">= 4",
    )
    whole = seconds(lambda: [together(pooled, size, GRID.sigmas) for size in GRID.num_features])
    report(f"seconds of the sweep over all {GRID.size} points", whole)


if __name__ == "__main__":
    main()
