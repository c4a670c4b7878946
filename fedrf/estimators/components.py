"""What TCA, R-TCA and RF-TCA share: solving on demand, γ paths, the discrepancy before and after."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable
from math import prod, sqrt
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fedrf.estimators.base import DomainAligner, to_tensor
from fedrf.tca.problems import Problem, Solution
from fedrf.tca.random_features import check_count, check_sigma, median_rows, median_sigma


class MMD(NamedTuple):
    """Squared distance between the domain means over the total variance, before and after alignment.

    Divided by the variance, the two can be compared: without it, shrinking all features would look like success.
    """

    before: float
    after: float


class Fitted(NamedTuple):
    """A solution as `transform` uses it, settled until the next fit."""

    weights: Tensor
    eigenvalues: Tensor
    variances: Tensor
    gamma: float


class ComponentAligner(DomainAligner):
    """Base of the aligners that solve one eigenproblem for all γ.

    Subclasses collect what they need in `_collect`, and describe it by `_problem`, `_discrepancy` and `_mmd_before`.
    The solution is computed when it is first needed. The fitted rows have mean zero in the aligned space.
    """

    dim: int
    gamma: float | str
    sigma: float | str
    kernel: str
    whiten: bool

    sigma_: float
    _solution: Fitted | None

    @property
    def aligner_(self) -> NDArray[Any]:
        """W, one component a column: samples' features times W are the aligned samples, up to a constant."""
        return self._solve().weights.numpy()

    @property
    def gamma_(self) -> float:
        """γ of the solution: what was given, or what ``"auto"`` came to."""
        return self._solve().gamma

    @property
    def eigenvalues_(self) -> NDArray[np.float64]:
        """Eigenvalues of Algorithm 1's matrix, decreasing: what each component varies, as a sum over the samples."""
        return self._solve().eigenvalues.numpy()

    @property
    def mmd_(self) -> MMD:
        """Discrepancy of the domains before and after; see `MMD`."""
        solution = self._solve()
        difference = self._discrepancy() @ solution.weights
        return MMD(self._mmd_before(), float(difference.square().sum() / solution.variances.sum()))

    def gamma_path(self, gammas: Iterable[float]) -> list[Self]:
        """Return a fitted copy for each γ; features, statistics and kernel matrices are shared, not recomputed."""
        check_is_fitted(self)
        path = []
        for gamma in gammas:
            member = copy.copy(self).set_params(gamma=gamma)
            member._check_parameters()
            member._solution = None
            path.append(member)
        return path

    def informative_gamma_range(self) -> tuple[float, float]:
        """Return the interval in which γ changes the solution most (paper, appendix B); search there."""
        check_is_fitted(self)
        return self._problem().informative_gamma_range(self.dim)

    @abstractmethod
    def _collect(self, rows: Any, is_source: Tensor) -> None:
        """Take in the rows of a complete fit."""

    @abstractmethod
    def _problem(self) -> Problem:
        """Return the eigenproblem of what was collected, or raise a ValueError that says what is missing."""

    @abstractmethod
    def _discrepancy(self) -> Tensor:
        """Return the difference of the domain means in the features that W multiplies."""

    @abstractmethod
    def _mmd_before(self) -> float:
        """Return the relative discrepancy in the kernel's own space."""

    @property
    @abstractmethod
    def _num_samples(self) -> int:
        """The number of rows collected so far."""

    def _learn(self, rows: Any, is_source: Tensor, y: object) -> None:
        self._collect(rows, is_source)
        self._solution = None
        self._solve()

    def _solve(self) -> Fitted:
        check_is_fitted(self)
        if self._solution is None:
            problem = self._problem()
            auto = self.gamma == "auto"
            gamma = sqrt(prod(problem.informative_gamma_range(self.dim))) if auto else float(self.gamma)
            solution = problem.solve(gamma, self.dim)
            weights, variances = unit_variance(solution, self._num_samples, self.whiten)
            self._solution = Fitted(weights, solution.eigenvalues, variances, gamma)
        return self._solution

    def _resolve_sigma(self, rows: Any) -> float:
        return resolve_sigma(self.sigma, self.kernel, rows)

    def _check_parameters(self) -> None:
        check_gamma(self.gamma)
        check_count("dim", self.dim)

    @property
    def _n_features_out(self) -> int:
        return self._solve().weights.shape[1]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_solution")


def unit_variance(solution: Solution, count: int, whiten: bool) -> tuple[Tensor, Tensor]:
    """Return W scaled to unit variance, of each component or on average, and the variances of the components.

    Penalties of classifiers are made for that scale.
    """
    values = solution.eigenvalues
    if whiten:
        return solution.whitened * sqrt(count), (values > 0).double()
    mean = float(values.sum() / (values > 0).sum())
    return solution.aligner * sqrt(count / mean), values / mean


def resolve_sigma(sigma: float | str, kernel: str, rows: Any) -> float:
    """Return σ as a number: the median distance between checked rows where that was asked for."""
    if sigma != "median":
        return check_sigma(sigma)
    return median_sigma(to_tensor(rows[median_rows(rows.shape[0])]), kernel)


def check_gamma(gamma: float | str) -> None:
    """Raise a ValueError where γ is neither a number, at least 0, nor ``"auto"``."""
    if gamma != "auto" and not (isinstance(gamma, int | float | np.number) and gamma >= 0):
        raise ValueError(f"gamma must be a number, at least 0, or 'auto'; got {gamma!r}")
