"""Transfer component analysis with random features (paper, algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fedrf.estimators.base import to_tensor, torch_dtype
from fedrf.estimators.components import ComponentAligner
from fedrf.tca.problems import DomainStatistics, ScatterProblem, suggest_num_features
from fedrf.tca.random_features import RandomFourierFeatures, check_count

CHUNK_BYTES = 2**26


class RFTCA(ComponentAligner):
    """Minimise the MMD after projection plus γ|W|², W acting on 2N random features.

    Linear in the number of rows, in chunks, with memory that does not grow with it. What it keeps of each domain
    are sums (`fedrf.tca.problems.DomainStatistics`), so rows can come in parts (`partial_fit`) or from several places
    (`merge`) and the result is that of the pooled rows to rounding error.

    Parameters
    ----------
    dim
        m, the number of components; at most 2 × `num_features`.
    num_features
        N, the number of random frequencies. See `suggest_num_features`.
    sigma
        σ, the width of the kernel, or ``"median"`` for the median distance between rows (of the first call, with
        `partial_fit`; give a number to estimators that are to be merged).
    gamma
        γ ≥ 0. Small: the domain means must coincide. Large: plain kernel PCA. ``"auto"`` takes the middle of
        `informative_gamma_range`.
    kernel
        ``gaussian``, ``laplace`` or ``cauchy``.
    random_state
        Seed of the frequencies, an integer. The same (seed, N, columns, σ, kernel) gives the same ones anywhere.
    whiten
        Give every component unit variance. Otherwise strong ones keep their weight and the mean variance is one.

    Attributes
    ----------
    aligner_, eigenvalues_, mmd_
        See `ComponentAligner`.
    features_
        The `RandomFourierFeatures` in use; `features_.fingerprint` tells whether two estimators can be merged.
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
    _posed: ScatterProblem | None

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
        """Add rows of any domains; the components are solved for when they are next needed."""
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
        """Take in all rows that `other` has seen, without seeing them: both must use the same frequencies."""
        check_is_fitted(self)
        check_is_fitted(other)
        mine, theirs = self.features_, other.features_
        if mine.fingerprint != theirs.fingerprint:
            raise ValueError(f"estimators with different frequencies cannot be merged: {mine} and {theirs}")
        self.source_ += other.source_
        self.target_ += other.target_
        self._posed = self._solution = None
        return self

    def suggest_num_features(self, error: float = 0.1) -> int:
        """Return an N whose kernel approximation has at most this relative error, from dim(K) log n (theorem 2)."""
        check_is_fitted(self)
        return suggest_num_features(self.source_ + self.target_, error)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        width = 2 * check_count("num_features", self.num_features)
        if self.dim > width:
            raise ValueError(f"dim must be at most 2 × num_features = {width}; got {self.dim}")

    def _check_unchanged(self) -> None:
        """Refuse to add rows under other frequencies than those of the rows before."""
        used = self.features_
        now = (self.num_features, self.kernel, self.random_state, used.sigma if self.sigma == "median" else self.sigma)
        if now != (used.num_features, used.kernel, used.seed, used.sigma):
            raise ValueError(
                "num_features, kernel, random_state and sigma cannot change between calls of partial_fit; use fit"
            )

    def _collect(self, rows: Any, is_source: Tensor) -> None:
        self._start(rows)
        self._add(rows, is_source)

    def _start(self, rows: Any) -> None:
        self.sigma_ = self._resolve_sigma(rows)
        self._dtype = torch_dtype(rows)
        self.features_ = RandomFourierFeatures(
            rows.shape[1], self.num_features, self.sigma_, self.kernel, self.random_state, dtype=self._dtype
        )
        self.source_ = self.target_ = DomainStatistics.empty(self.features_.out_features)

    def _add(self, rows: Any, is_source: Tensor) -> None:
        self._posed = None
        for features in self._feature_chunks(rows, is_source.nonzero()[:, 0]):
            self.source_ += DomainStatistics.of(features)
        for features in self._feature_chunks(rows, (~is_source).nonzero()[:, 0]):
            self.target_ += DomainStatistics.of(features)

    def _feature_chunks(self, rows: Any, wanted: Tensor) -> Iterator[Tensor]:
        """Yield random features of a few rows at a time, each chunk in the memory of the one before."""
        if not len(wanted):
            return
        width = self.features_.out_features
        step = max(1, CHUNK_BYTES // (max(width, rows.shape[1]) * self._dtype.itemsize))
        buffer = torch.empty(min(step, len(wanted)), width, dtype=self._dtype)
        for chunk in wanted.split(step):
            first, last = int(chunk[0]), int(chunk[-1])
            run = last - first + 1 == len(chunk)  # most often: then the rows need not be copied together
            inputs = to_tensor(rows[first : last + 1] if run else rows[chunk.numpy()]).to(self._dtype)
            yield self.features_.write(inputs, buffer[: len(inputs)])

    def _problem(self) -> ScatterProblem:
        """Return the problem of all rows so far; kept until more come in, since all γ share most of its work."""
        for name, statistics in (("source", self.source_), ("target", self.target_)):
            if statistics.count == 0:
                raise ValueError(f"no {name} rows have come in yet; both domains are needed")
        if self._posed is None:
            self._posed = ScatterProblem(self.source_, self.target_, self._dtype)
        return self._posed

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

    @property
    def _num_samples(self) -> int:
        return self.source_.count + self.target_.count
