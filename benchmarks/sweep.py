"""Speed of closed-form sweeps: the paper's γ × σ grid at three N, against a separate fit for each point.

`python -m benchmarks.sweep`, about a minute and a half. The data are Office-Caltech10's SURF features, Amazon to
Caltech, if `$FEDRF_DATA` has them, else random rows of the same size. Neither side trains classifiers. It uses one
thread: in these small problems two threads wait for each other longer than they compute when the machine is busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.rftca import interleaved, seconds
from benchmarks.rows import report
from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.loader import load_config
from fedrf.config.schema import Config
from fedrf.experiment.resolve import check_files, resolve_config
from tune.closed_form import ClosedFormGrid, solve_gamma_path
from tune.pooled import PooledData, load_pooled

GRID = ClosedFormGrid()
FEW_SIGMAS = GRID.sigmas[::10]  # for the separate fits, which are slow
NUM_SOURCE, NUM_TARGET, COLUMNS = 958, 1123, 800


def synthetic() -> PooledData:
    """Return rows of norm 1 in ten clusters, with a slightly shifted target."""
    rng = np.random.RandomState(0)
    labels = rng.randint(10, size=NUM_SOURCE + NUM_TARGET)
    rows = rng.randn(10, COLUMNS)[labels] + 2 * rng.randn(len(labels), COLUMNS)
    rows[NUM_SOURCE:] += 0.3 * rng.randn(COLUMNS)
    unit = torch.nn.functional.normalize(torch.from_numpy(rows).float())
    config: Config = load_config(None, {"model.dim": 100})
    return PooledData.from_rows(config, unit, labels[:NUM_SOURCE], Evaluator(None))


def load() -> tuple[str, PooledData]:
    """Return the name of the data, and the data."""
    try:
        config = resolve_config("office-caltech10-surf", {"data.sources": "amazon", "data.target": "caltech"})
        check_files(config)
    except ValueError:
        return "random rows", synthetic()
    return "Office-Caltech10 SURF", load_pooled(config)


def shared_fits(pooled: PooledData, num_features: int, sigmas: Sequence[float]) -> list[torch.Tensor]:
    """Return the aligned rows for every point, from one path along γ for each σ."""
    paths = (solve_gamma_path(pooled, num_features, sigma, GRID.gammas) for sigma in sigmas)
    return [aligned for path in paths for aligned in path.aligned]


def separate_fits(pooled: PooledData, num_features: int, sigmas: Sequence[float]) -> list[torch.Tensor]:
    """Return the aligned rows for every point, from a separate fit for each."""
    rows, aligned = pooled.rows.numpy(), []
    for sigma in sigmas:
        for gamma in GRID.gammas:
            estimator = pooled.estimator(num_features, sigma).set_params(gamma=gamma * pooled.gamma_unit)
            aligned.append(torch.from_numpy(estimator.fit_transform(rows, sample_domain=pooled.domain)))
    return aligned


def main() -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    name, pooled = load()
    count, columns = pooled.rows.shape
    print(f"one thread; {name}: n = {count}, p = {columns}, m = {pooled.dim}")
    separate = shared = 0.0
    for size in GRID.num_features:
        fits = [partial(fit, pooled, size, FEW_SIGMAS) for fit in (separate_fits, shared_fits)]
        pairs = zip(*(fit() for fit in fits), strict=True)
        difference = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
        report(
            f"N = {size}: largest difference of aligned rows, relative to the largest entry", difference, bar="<= 1e-4"
        )
        times = interleaved(*fits)
        report(
            f"N = {size}: {len(GRID.gammas)} fits for each of {len(FEW_SIGMAS)} σ / a path for each",
            times[0] / times[1],
        )
        separate, shared = separate + times[0], shared + times[1]
    report(
        f"a fit for each point / the sweep, all N, at {len(FEW_SIGMAS)} of the {len(GRID.sigmas)} σ",
        separate / shared,
        bar=">= 4",
    )
    whole = seconds(lambda: [shared_fits(pooled, size, GRID.sigmas) for size in GRID.num_features])
    report(f"seconds of the sweep over all {GRID.size} points", whole, "s")


if __name__ == "__main__":
    main()
