"""Transfer component analysis with random features (paper, algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fedrf.estimators.base import to_tensor, torch_dtype
from fedrf.estimators.components import ComponentAligner, resolve_sigma
from fedrf.tca.problems import ScatterProblem
from fedrf.tca.random_features import RandomFourierFeatures, check_count
from fedrf.tca.statistics import DomainStatistics, suggest_num_features

CHUNK_BYTES = 2**26


class RFTCA(ComponentAligner):
    """Minimise the MMD after projection plus γ|W|², W acting on 2N random features.

    Time is linear in the number of rows; memory does not depend on it, since rows are processed in chunks. The
    estimator keeps only sums per domain (`fedrf.tca.statistics.DomainStatistics`), so that rows can be added in parts
    (`partial_fit`) or from other estimators (`merge`). The result is that of the pooled rows up to rounding error.

    Parameters
    ----------
    dim
        m, the number of components; at most 2 × `num_features`.
    num_features
        N, the number of random frequencies. See `suggest_num_features`.
    sigma
        σ, the width of the kernel, or ``"median"`` for the median distance between rows. `partial_fit` uses the rows of
        the first call. Estimators that are to be merged need the same number.
    gamma
        γ ≥ 0. Small: the domain means must coincide. Large: plain kernel PCA. ``"auto"`` is the geometric mean of
        the ends of `informative_gamma_range`.
    kernel
        ``gaussian``, ``laplace`` or ``cauchy``.
    random_state
        Seed of the frequencies, an integer. The frequencies depend only on (seed, N, columns, σ, kernel).
    whiten
        Scale every component to unit variance. If False, components keep their relative variances and the mean is one.

    Attributes
    ----------
    aligner_, eigenvalues_, mmd_
        See `ComponentAligner`.
    features_
        The `RandomFourierFeatures`; estimators with equal `features_.fingerprint` can be merged.
    source_, target_
        `DomainStatistics` of each domain.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.RandomState(0).randn(60, 5)
    >>> domain = np.repeat([1, -1], 30)
    >>> X[domain < 0] += 1
    >>> RFTCA(dim=3, num_features=50).fit_transform(X, sample_domain=domain).shape
    (60, 3)
    """

    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"sample_domain": True}

    features_: RandomFourierFeatures
    source_: DomainStatistics
    target_: DomainStatistics
    _cached_problem: ScatterProblem | None

    def __init__(
        self,
        dim: int = 100,
        num_features: int = 1000,
        sigma: float | str = "median",
        gamma: float | str = 1.0,
        kernel: str = "gaussian",
        random_state: int = 0,
        whiten: bool = False,
    ) -> None:
        self.dim = dim
        self.num_features = num_features
        self.sigma = sigma
        self.gamma = gamma
        self.kernel = kernel
        self.random_state = random_state
        self.whiten = whiten

    def partial_fit(self, X: ArrayLike, y: object = None, *, sample_domain: ArrayLike | None = None) -> Self:
        """Add rows of any domain; the components are computed on next use."""
        self._check_parameters()
        first = not self.__sklearn_is_fitted__()
        if not first:
            self._check_unchanged()
        rows, is_source = self._check_input(X, sample_domain, reset=first)
        if first:
            self._start(rows)
        self._add(rows, torch.from_numpy(is_source))
        self._solution = None
        return self

    def merge(self, other: RFTCA) -> Self:
        """Add the statistics of all rows of `other`, which must have the same frequencies."""
        check_is_fitted(self)
        check_is_fitted(other)
        features, others = self.features_, other.features_
        if features.fingerprint != others.fingerprint:
            raise ValueError(f"estimators with different frequencies cannot be merged: {features} and {others}")
        self.source_ += other.source_
        self.target_ += other.target_
        self._cached_problem = self._solution = None
        return self

    def suggest_num_features(self, error: float = 0.1) -> int:
        """Return an N for which the kernel approximation has at most this relative error (paper, theorem 2)."""
        check_is_fitted(self)
        return suggest_num_features(self.source_ + self.target_, error)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        width = 2 * check_count("num_features", self.num_features)
        if self.dim > width:
            raise ValueError(f"dim must be at most 2 × num_features = {width}; got {self.dim}")

    def _check_unchanged(self) -> None:
        """Raise a ValueError if the parameters would give other frequencies than those of the previous rows."""
        used = self.features_
        sigma = used.sigma if self.sigma == "median" else self.sigma
        if (self.num_features, self.kernel, self.random_state, sigma) != (
            used.num_features,
            used.kernel,
            used.seed,
            used.sigma,
        ):
            raise ValueError(
                "num_features, kernel, random_state and sigma cannot change between calls of partial_fit; use fit"
            )

    def _collect(self, rows: Any, is_source: Tensor) -> None:
        self._start(rows)
        self._add(rows, is_source)

    def _start(self, rows: Any) -> None:
        self.sigma_ = resolve_sigma(self.sigma, self.kernel, rows)
        self._dtype = torch_dtype(rows)
        self.features_ = RandomFourierFeatures(
            rows.shape[1], self.num_features, self.sigma_, self.kernel, self.random_state, dtype=self._dtype
        )
        self.source_ = self.target_ = DomainStatistics.empty(self.features_.out_features)

    def _add(self, rows: Any, is_source: Tensor) -> None:
        self._cached_problem = None
        for features in self._feature_chunks(rows, is_source.nonzero()[:, 0]):
            self.source_ += DomainStatistics.of(features)
        for features in self._feature_chunks(rows, (~is_source).nonzero()[:, 0]):
            self.target_ += DomainStatistics.of(features)

    def _feature_chunks(self, rows: Any, indices: Tensor) -> Iterator[Tensor]:
        """Yield random features of a few of the rows at a time; all chunks share one buffer."""
        if not len(indices):
            return
        width = self.features_.out_features
        step = max(1, CHUNK_BYTES // (max(width, rows.shape[1]) * self._dtype.itemsize))
        buffer = torch.empty(min(step, len(indices)), width, dtype=self._dtype)
        for chunk in indices.split(step):
            first, last = int(chunk[0]), int(chunk[-1])
            contiguous = last - first + 1 == len(chunk)  # the usual case; a slice needs no copy
            inputs = to_tensor(rows[first : last + 1] if contiguous else rows[chunk.numpy()]).to(self._dtype)
            yield self.features_.write(inputs, buffer[: len(inputs)])

    def _problem(self) -> ScatterProblem:
        """Return the problem of all rows so far, cached until rows are added: all γ share most of its work."""
        for name, statistics in (("source", self.source_), ("target", self.target_)):
            if statistics.count == 0:
                raise ValueError(f"no {name} rows have been added yet; both domains are needed")
        if self._cached_problem is None:
            self._cached_problem = ScatterProblem(self.source_, self.target_, self._dtype)
        return self._cached_problem

    def _discrepancy(self) -> Tensor:
        return self._problem().discrepancy

    def _mmd_before(self) -> float:
        problem = self._problem()
        return problem.squared_discrepancy / problem.total_variance

    def _transform(self, rows: Any, is_source: Tensor) -> Tensor:
        weights = self._solve().weights
        offset = self._problem().pooled.mean @ weights
        weights, offset = weights.to(self._dtype), offset.to(self._dtype)
        chunks = self._feature_chunks(rows, torch.arange(rows.shape[0]))
        return torch.cat([features @ weights - offset for features in chunks])
