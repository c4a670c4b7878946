"""RF-TCA in closed form over a grid of γ, σ and N, with a choice that needs no target labels.

For each (N, σ) the random features, their statistics and an eigenbasis are computed once for all γ. Sharing Ω between
σ, and statistics between N, would save another fifth of the time, but needs a second implementation of the estimator.

The grid has the paper's numbers. Its γ is in units of |ℓ|² = n/(n_S n_T), as in the figure of appendix B: in the units
of the equations half of the grid was above every measured informative range. Its σ, from 5 to 15, is in tenths of
`model.sigma`, by default the median distance of rows: for rows of norm 1 the kernel with σ = 5 is almost linear.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import ThreadpoolController
from torch import Tensor

from fedrf.adaptation.information import information
from fedrf.estimators import RFTCA
from tune.pooled import PooledData

BATCH_ROWS = 1024  # rows whose random features are in memory together


@dataclass(frozen=True)
class ClosedFormGrid:
    """The paper's grid, in the units of this module."""

    gammas: tuple[float, ...] = tuple(10.0**power for power in range(-3, 4))
    sigmas: tuple[float, ...] = tuple(float(sigma) for sigma in range(5, 16))
    num_features: tuple[int, ...] = (100, 500, 1000)

    @property
    def size(self) -> int:
        """The number of points."""
        return len(self.gammas) * len(self.sigmas) * len(self.num_features)


@dataclass(frozen=True)
class GridPoint:
    """Result at one point of the grid: a row of points.csv.

    Attributes
    ----------
    grid_sigma, grid_gamma
        In units of the grid; `sigma` and `gamma` are values of `model.sigma` and `align.gamma`.
    dim
        Number of components with variance.
    score
        Mutual information between the target's samples and their predicted classes; needs no labels.
    accuracy
        Accuracy of the same predictions, only recorded; None if the target has no labels.
    informative
        Whether γ is in the informative range from `zone_low` to `zone_high`, in which it changes the solution most.
    shared_seconds, path_seconds
        The point's share of the time for all γ: features, statistics and basis, then all solutions.
    scoring_seconds
        Time for the classifier.
    """

    num_features: int
    grid_sigma: float
    grid_gamma: float
    sigma: float
    gamma: float
    dim: int
    score: float
    accuracy: float | None
    mmd_before: float
    mmd_after: float
    informative: bool
    zone_low: float
    zone_high: float
    shared_seconds: float
    path_seconds: float
    scoring_seconds: float


class GammaPath(NamedTuple):
    """Solutions for all γ at one N and σ.

    Attributes
    ----------
    estimators
        Fitted estimators, one for each γ.
    aligned
        Aligned rows, of shape γ × n × m.
    informative
        The informative range of γ.
    """

    estimators: list[RFTCA]
    aligned: Tensor
    informative: tuple[float, float]
    shared_seconds: float
    path_seconds: float


def solve_gamma_path(pooled: PooledData, num_features: int, sigma: float, gammas: Sequence[float]) -> GammaPath:
    """Solve RF-TCA for all γ of a grid at one N and σ; what does not depend on γ is computed once."""
    start = time.perf_counter()
    # partial_fit, because fit would also solve for one γ; the range computes the basis that all γ share.
    shared = pooled.estimator(num_features, sigma).partial_fit(pooled.rows.numpy(), sample_domain=pooled.domain)
    informative = shared.informative_gamma_range()
    middle = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only .* components carry any variance")  # see `GridPoint.dim`
        estimators = shared.gamma_path([gamma * pooled.gamma_unit for gamma in gammas])
        aligner = torch.from_numpy(np.concatenate([estimator.aligner_ for estimator in estimators], axis=1))
    aligned = _align(pooled, shared, aligner).unflatten(1, (len(estimators), -1)).movedim(1, 0)
    return GammaPath(estimators, aligned, informative, middle - start, time.perf_counter() - middle)


def _align(pooled: PooledData, shared: RFTCA, aligner: Tensor) -> Tensor:
    """Return the centred random features of all rows times the aligners of all γ side by side."""
    mean = (shared.source_.total + shared.target_.total) / len(pooled.rows)
    offset, aligner = (mean @ aligner).to(pooled.rows), aligner.to(pooled.rows)
    aligned = pooled.rows.new_empty(len(pooled.rows), aligner.shape[1])
    buffer = pooled.rows.new_empty(BATCH_ROWS, len(aligner))
    for rows, out in zip(pooled.rows.split(BATCH_ROWS), aligned.split(BATCH_ROWS), strict=True):
        torch.addmm(offset, shared.features_.write(rows, buffer[: len(rows)]), aligner, beta=-1, out=out)
    return aligned


def evaluate_gamma_path(
    pooled: PooledData, num_features: int, sigma: float, gammas: Sequence[float]
) -> Iterator[GridPoint]:
    """Solve for all γ at one N and σ, and score each by a classifier trained on the aligned sources."""
    path, sources = solve_gamma_path(pooled, num_features, sigma, gammas), len(pooled.labels)
    # The solution for one γ is a good start for the next; at this tolerance scores still agree to four digits.
    classifier = LogisticRegression(max_iter=1000, tol=1e-5, warm_start=True)
    pools = ThreadpoolController()
    low, high = path.informative
    for gamma, estimator, aligned in zip(gammas, path.estimators, path.aligned.numpy(), strict=True):
        start = time.perf_counter()
        with pools.limit(limits=1, user_api="blas"):  # the products are small; a second pool would slow torch down
            classifier.fit(aligned[:sources], pooled.labels)
            probabilities = torch.from_numpy(classifier.predict_proba(aligned[sources:]))
        predicted = torch.from_numpy(classifier.classes_)[probabilities.argmax(1)]
        mmd = estimator.mmd_
        yield GridPoint(
            num_features=num_features,
            grid_sigma=sigma,
            grid_gamma=gamma,
            sigma=estimator.sigma_,
            gamma=estimator.gamma_,
            dim=int((estimator.eigenvalues_ > 0).sum()),
            score=float(information(probabilities)),
            accuracy=pooled.evaluator(predicted),
            mmd_before=mmd.before,
            mmd_after=mmd.after,
            informative=low <= estimator.gamma_ <= high,
            zone_low=low,
            zone_high=high,
            shared_seconds=path.shared_seconds / len(gammas),
            path_seconds=path.path_seconds / len(gammas),
            scoring_seconds=time.perf_counter() - start,
        )


def sweep_grid(
    pooled: PooledData, grid: ClosedFormGrid, progress: Callable[[], object] = lambda: None
) -> list[GridPoint]:
    """Return the results at all points of a grid; `progress` is called after each."""
    points = []
    for num_features in grid.num_features:
        for sigma in grid.sigmas:
            for point in evaluate_gamma_path(pooled, num_features, sigma, grid.gammas):
                points.append(point)
                progress()
    return points


def selected(points: Sequence[GridPoint]) -> GridPoint:
    """Return the point with the best score at the largest N, without using target labels.

    Scores of different N are not comparable: a larger N approximates the same kernel better, and with few features a
    classifier can be confident of wrong predictions.
    """
    largest = max(point.num_features for point in points)
    return max((point for point in points if point.num_features == largest), key=lambda point: point.score)


def oracle(points: Sequence[GridPoint]) -> GridPoint | None:
    """Return the most accurate point, which cannot be chosen without target labels; None without labels."""
    labelled = [point for point in points if point.accuracy is not None]
    return max(labelled, key=lambda point: point.accuracy or 0.0, default=None)


def by_num_features(points: Sequence[GridPoint]) -> dict[int, list[GridPoint]]:
    """Group the points by N."""
    sizes = dict.fromkeys(point.num_features for point in points)
    return {size: [point for point in points if point.num_features == size] for size in sizes}
