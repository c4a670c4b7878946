"""The base class of TCA, R-TCA and RF-TCA: lazy solution, γ paths, discrepancy before and after alignment."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable
from math import sqrt
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fedrf.estimators.base import DomainAligner, to_tensor
from fedrf.tca.problems import Problem, Solution, check_gamma, resolve_gamma
from fedrf.tca.random_features import check_count, check_sigma, median_row_indices, median_sigma


class MMD(NamedTuple):
    """Squared distance of the domain means divided by the total variance, before and after alignment.

    The division makes both values comparable: otherwise shrinking all features would look like an improvement.
    """

    before: float
    after: float


class ScaledSolution(NamedTuple):
    """A solution with the scaling and the γ that `transform` uses until the next fit."""

    weights: Tensor
    eigenvalues: Tensor
    variances: Tensor
    gamma: float


class ComponentAligner(DomainAligner):
    """Base class of the aligners that solve one eigenproblem for all γ.

    Subclasses reduce the rows to what they need in `_collect`, and describe it by `_problem`, `_discrepancy` and
    `_mmd_before`. The solution is computed on first use. The fitted rows have mean zero in the aligned space.
    """

    dim: int
    gamma: float | str
    sigma: float | str
    kernel: str
    whiten: bool

    sigma_: float
    _solution: ScaledSolution | None

    @property
    def aligner_(self) -> NDArray[Any]:
        """W, one component per column: the features of samples times W are the aligned samples, up to a constant."""
        return self._solve().weights.numpy()

    @property
    def gamma_(self) -> float:
        """γ of the solution: the given value, or the value chosen by ``"auto"``."""
        return self._solve().gamma

    @property
    def eigenvalues_(self) -> NDArray[np.float64]:
        """Eigenvalues of Algorithm 1's matrix, decreasing: the variance of each component times n."""
        return self._solve().eigenvalues.numpy()

    @property
    def mmd_(self) -> MMD:
        """Discrepancy of the domains before and after alignment; see `MMD`."""
        solution = self._solve()
        difference = self._discrepancy() @ solution.weights
        return MMD(self._mmd_before(), float(difference.square().sum() / solution.variances.sum()))

    def gamma_path(self, gammas: Iterable[float]) -> list[Self]:
        """Return a fitted copy for each γ; features, statistics and kernel matrices are shared."""
        check_is_fitted(self)
        path = []
        for gamma in gammas:
            aligner = copy.copy(self).set_params(gamma=gamma)
            aligner._check_parameters()
            aligner._solution = None
            path.append(aligner)
        return path

    def informative_gamma_range(self) -> tuple[float, float]:
        """Return the interval in which γ changes the solution most (paper, appendix B): a range for a search."""
        check_is_fitted(self)
        return self._problem().informative_gamma_range(self.dim)

    @abstractmethod
    def _collect(self, rows: Any, is_source: Tensor) -> None:
        """Replace what was collected before by the rows of a new fit."""

    @abstractmethod
    def _problem(self) -> Problem:
        """Return the eigenproblem of the collected rows, or raise a ValueError that names the missing domain."""

    @abstractmethod
    def _discrepancy(self) -> Tensor:
        """Return the difference of the domain means, in the features that W multiplies."""

    @abstractmethod
    def _mmd_before(self) -> float:
        """Return the relative discrepancy in the kernel's own space."""

    def _learn(self, rows: Any, is_source: Tensor, y: object) -> None:
        self._collect(rows, is_source)
        self._solution = None
        self._solve()

    def _solve(self) -> ScaledSolution:
        check_is_fitted(self)
        if self._solution is None:
            problem = self._problem()
            gamma = resolve_gamma(self.gamma, problem, self.dim)
            solution = problem.solve(gamma, self.dim)
            weights, variances = unit_variance(solution, problem.num_samples, self.whiten)
            self._solution = ScaledSolution(weights, solution.eigenvalues, variances, gamma)
        return self._solution

    def _check_parameters(self) -> None:
        check_gamma(self.gamma)
        check_count("dim", self.dim)

    @property
    def _n_features_out(self) -> int:
        return self._solve().weights.shape[1]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_solution")


def unit_variance(solution: Solution, count: int, whiten: bool) -> tuple[Tensor, Tensor]:
    """Return W scaled to unit variance, per component or on average, and the variances of the components.

    The penalties of classifiers assume this scale.
    """
    values = solution.eigenvalues
    if whiten:
        return solution.whitened * sqrt(count), (values > 0).double()
    mean = float(values.sum() / (values > 0).sum())
    return solution.aligner * sqrt(count / mean), values / mean


def resolve_sigma(sigma: float | str, kernel: str, rows: Any) -> float:
    """Return σ as a number; ``"median"`` is the median distance between the checked rows."""
    if sigma != "median":
        return check_sigma(sigma)
    return median_sigma(to_tensor(rows[median_row_indices(rows.shape[0])]), kernel)
