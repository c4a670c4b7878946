"""RF-TCA in closed form over a grid of γ, σ and N, chosen from without labels.

For each (N, σ) the features, their statistics and an eigenbasis are computed once, and all γ go along one path. To
share Ω between σ, and statistics between N, would save another fifth, for a second implementation of the estimator.

Rows are those of a federated run: what each client loads, behind the fixed part of the extractor, at norm 1. So a σ, γ
or N means the same here and there. The grid has the paper's numbers. Its γ counts in |ℓ|² = n/(n_S n_T), as in the
figure of appendix B: in the equations' own units half of the grid lay above every informative range that was measured.
Its σ, from 5 to 15, counts in tenths of `model.sigma`, by default the median distance of rows: at norm 1, even σ = 5 to
the letter makes the kernel as good as linear.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.nn.functional import normalize

from fedrf.adaptation.evaluation import Evaluator
from fedrf.adaptation.information import information
from fedrf.config.schema import Config
from fedrf.data.registry import clients_of, load_samples
from fedrf.data.samples import Labels, Samples
from fedrf.estimators import RFTCA
from fedrf.models.extractors import make_extractor
from fedrf.models.trunk_rows import trunk_rows
from fedrf.tca.random_features import median_sigma

ROWS = 1024  # at a time, whose features are in memory


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
class Pooled:
    """Rows of all domains, sources first, with the labels of the sources alone.

    Attributes
    ----------
    accuracy
        Tells the accuracy of predictions for the target, if anybody knows it; for the records only.
    gamma_unit, sigma_unit
        What γ = 1 and σ = 1 of a grid stand for.
    """

    rows: Tensor
    labels: Labels
    accuracy: Evaluator
    gamma_unit: float
    sigma_unit: float
    kernel: str
    dim: int
    seed: int

    @classmethod
    def of(cls, config: Config, rows: Tensor, labels: Labels, accuracy: Evaluator) -> Pooled:
        """Settle what depends on the rows."""
        model, count, sources = config.model, len(rows), len(labels)
        width = median_sigma(rows, model.kernel) if model.sigma == "median" else model.sigma
        gamma_unit = count / (sources * (count - sources))
        return cls(rows, labels, accuracy, gamma_unit, width / 10, model.kernel, model.dim, config.seed)

    @property
    def domain(self) -> NDArray[np.int64]:
        """1 for rows of the sources, -1 for those of the target."""
        return np.where(np.arange(len(self.rows)) < len(self.labels), 1, -1)

    def estimator(self, num_features: int, sigma: float) -> RFTCA:
        """Return an estimator for one N and one σ of the grid; more components than n − 1 cannot vary."""
        dim = min(self.dim, 2 * num_features, len(self.rows) - 1)
        return RFTCA(dim, num_features, sigma * self.sigma_unit, kernel=self.kernel, random_state=self.seed)


@dataclass(frozen=True)
class SweepPoint:
    """One point of the grid, as points.csv has it.

    Attributes
    ----------
    grid_sigma, grid_gamma
        As the grid counts; `sigma` and `gamma` are what `model.sigma` and `align.gamma` take.
    dim
        Components that carry any variance.
    score
        Mutual information between the target's samples and their predicted classes; needs no labels.
    accuracy
        Of the same predictions, for the record; None where the target has no labels.
    informative
        Whether γ lies in the range, from `zone_low` to `zone_high`, in which it changes the solution most.
    shared_seconds, path_seconds
        The point's share of what its path of γ took: features, statistics and basis, then all solutions.
    scoring_seconds
        For the classifier.
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
    """All γ at one N and σ: fitted estimators, the aligned rows of each (γ × n × m), and the informative range."""

    members: list[RFTCA]
    aligned: Tensor
    informative: tuple[float, float]
    shared_seconds: float
    path_seconds: float


def walk(pooled: Pooled, num_features: int, sigma: float, gammas: Sequence[float]) -> GammaPath:
    """Solve for all γ of a grid, computing what they share once."""
    start = time.perf_counter()
    # partial_fit, since fit would solve for a γ at once; the range makes the basis that all γ share.
    shared = pooled.estimator(num_features, sigma).partial_fit(pooled.rows.numpy(), sample_domain=pooled.domain)
    informative = shared.informative_gamma_range()
    middle = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only .* components carry any variance")  # `SweepPoint.dim` says so
        members = shared.gamma_path([gamma * pooled.gamma_unit for gamma in gammas])
        weights = torch.from_numpy(np.concatenate([member.aligner_ for member in members], axis=1))
    mean = (shared.source_.total + shared.target_.total) / len(pooled.rows)
    offset, weights = (mean @ weights).to(pooled.rows), weights.to(pooled.rows)
    aligned = pooled.rows.new_empty(len(pooled.rows), weights.shape[1])
    buffer = pooled.rows.new_empty(ROWS, len(weights))
    for rows, out in zip(pooled.rows.split(ROWS), aligned.split(ROWS), strict=True):
        torch.addmm(offset, shared.features_.write(rows, buffer[: len(rows)]), weights, beta=-1, out=out)
    by_gamma = aligned.unflatten(1, (len(members), -1)).movedim(1, 0)
    return GammaPath(members, by_gamma, informative, middle - start, time.perf_counter() - middle)


def points_along(pooled: Pooled, num_features: int, sigma: float, gammas: Sequence[float]) -> Iterator[SweepPoint]:
    """Solve for all γ at one N and σ, and judge each by a classifier that is trained on the aligned sources."""
    path, sources = walk(pooled, num_features, sigma, gammas), len(pooled.labels)
    # The solution for one γ is a good start for the next; that tolerance makes scores the same to four digits anyway.
    classifier = LogisticRegression(max_iter=1000, tol=1e-5, warm_start=True)
    pools = ThreadpoolController()
    low, high = path.informative
    for gamma, member, aligned in zip(gammas, path.members, path.aligned.numpy(), strict=True):
        start = time.perf_counter()
        with pools.limit(limits=1, user_api="blas"):  # products are small, and a second pool would slow torch's down
            classifier.fit(aligned[:sources], pooled.labels)
            probabilities = torch.from_numpy(classifier.predict_proba(aligned[sources:]))
        predicted = torch.from_numpy(classifier.classes_)[probabilities.argmax(1)]
        mmd = member.mmd_
        yield SweepPoint(
            num_features=num_features,
            grid_sigma=sigma,
            grid_gamma=gamma,
            sigma=member.sigma_,
            gamma=member.gamma_,
            dim=int((member.eigenvalues_ > 0).sum()),
            score=float(information(probabilities)),
            accuracy=pooled.accuracy(predicted),
            mmd_before=mmd.before,
            mmd_after=mmd.after,
            informative=low <= member.gamma_ <= high,
            zone_low=low,
            zone_high=high,
            shared_seconds=path.shared_seconds / len(gammas),
            path_seconds=path.path_seconds / len(gammas),
            scoring_seconds=time.perf_counter() - start,
        )


def sweep(pooled: Pooled, grid: ClosedFormGrid, progress: Callable[[], object] = lambda: None) -> list[SweepPoint]:
    """Return all points of a grid; `progress` is called after each."""
    points = []
    for num_features in grid.num_features:
        for sigma in grid.sigmas:
            for point in points_along(pooled, num_features, sigma, grid.gammas):
                points.append(point)
                progress()
    return points


def load_pooled(config: Config, progress: Callable[[int, int], None] = lambda done, total: None) -> Pooled:
    """Load the domains of a settled configuration, and put them through the fixed part of its extractor.

    `progress` is told how many samples of a domain are done, where a backbone has to look at them first.
    """
    settings = config.model
    if settings.extractor in ("cnn", "mlp"):
        raise ValueError(
            f"model.extractor={settings.extractor} is learned from nothing, and closed form does not learn: "
            "take identity, gradients or a backbone"
        )
    sources, target = clients_of(config.data)
    samples = [load_samples(config.data, client, config.seed) for client in (*sources, target)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        extractor = make_extractor(settings.extractor, samples[0].content.shape, settings.weights)
    layers, device = extractor.settled(), "cuda" if torch.cuda.is_available() else "cpu"
    threads = torch.get_num_threads()

    def rows_of(one: Samples) -> Tensor:
        rows = trunk_rows(layers, extractor.prepare, one, settings, device, threads, progress)
        return torch.cat([normalize(piece) for piece in rows.split(ROWS)])

    labels = np.concatenate([one.labels for one in samples[:-1] if one.labels is not None])
    if len(np.unique(labels)) < 2:
        raise ValueError(f"{', '.join(sources)}: all samples are of one class; a classifier needs two")
    rows = torch.cat([rows_of(one.without_labels()) for one in samples])
    return Pooled.of(config, rows, labels, Evaluator(samples[-1].labels))


def selected(points: Sequence[SweepPoint]) -> SweepPoint:
    """Return the point with the best score at the largest N; no label of the target is looked at.

    N buys a better kernel, not another model, and with few features a classifier can be sure of what is wrong: scores
    of different N do not compare.
    """
    largest = max(point.num_features for point in points)
    return max((point for point in points if point.num_features == largest), key=lambda point: point.score)


def oracle(points: Sequence[SweepPoint]) -> SweepPoint | None:
    """Return the most accurate point, which nobody without target labels could have chosen."""
    known = [point for point in points if point.accuracy is not None]
    return max(known, key=lambda point: point.accuracy or 0.0, default=None)


def by_num_features(points: Sequence[SweepPoint]) -> dict[int, list[SweepPoint]]:
    """Return the points of each N."""
    sizes = dict.fromkeys(point.num_features for point in points)
    return {size: [point for point in points if point.num_features == size] for size in sizes}
