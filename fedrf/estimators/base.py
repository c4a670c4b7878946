"""What all closed-form aligners share: input checks, solving on demand, γ paths, scikit-learn's conventions."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from math import prod, sqrt
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from fedrf.features import check_count, check_sigma, median_rows, median_sigma
from fedrf.tca import Problem


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


class DomainAligner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of the closed-form aligners.

    Subclasses store their parameters in ``__init__``, collect what they need in `_collect`, and describe it by
    `_problem`, `_discrepancy` and `_mmd_before`. The solution is computed when it is first needed.
    """

    # Both scikit-learn's metadata routing and skada's pipelines read this.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sample_domain": True}

    dim: int
    gamma: float | str
    sigma: float | str
    kernel: str
    whiten: bool

    sigma_: float
    n_features_in_: int
    _solution: Fitted | None

    def fit(self, X: ArrayLike, y: object = None, *, sample_domain: ArrayLike | None = None) -> Self:
        """Find the components that bring the domains together.

        Parameters
        ----------
        X
            Samples of all domains, in rows. float32 stays float32, anything else becomes float64.
        y
            Ignored.
        sample_domain
            One integer for each row: positive for source domains, negative for target domains.
        """
        self._check_parameters()
        rows, is_source = self._check_input(X, sample_domain, reset=True, least=2)
        if is_source.all() or not is_source.any():
            present, missing = ("source", "target") if is_source.all() else ("target", "source")
            raise ValueError(f"sample_domain has {present} rows only; {missing} rows are needed too")
        self._collect(rows, torch.from_numpy(is_source))
        self._solution = None
        self._solve()
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Map rows of either domain, seen or unseen, to the aligned space; the fitted rows have mean zero there."""
        check_is_fitted(self)
        return self._transform(self._check_rows(X, reset=False)).numpy()

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

    @abstractmethod
    def _transform(self, rows: Any) -> Tensor:
        """Map checked rows to the aligned space."""

    @property
    @abstractmethod
    def _num_samples(self) -> int:
        """The number of rows collected so far."""

    def _solve(self) -> Fitted:
        check_is_fitted(self)
        if self._solution is None:
            problem, count = self._problem(), self._num_samples
            auto = self.gamma == "auto"
            gamma = sqrt(prod(problem.informative_gamma_range(self.dim))) if auto else float(self.gamma)
            solution = problem.solve(gamma, self.dim)
            values = solution.eigenvalues
            # Unit variance, of each component or on average: penalties of classifiers are made for that scale.
            mean = float(values.sum() / (values > 0).sum())
            if self.whiten:
                self._solution = Fitted(solution.whitened * sqrt(count), values, (values > 0).double(), gamma)
            else:
                self._solution = Fitted(solution.aligner * sqrt(count / mean), values, values / mean, gamma)
        return self._solution

    def _resolve_sigma(self, rows: Any) -> float:
        if self.sigma != "median":
            return check_sigma(self.sigma)
        return median_sigma(to_tensor(rows[median_rows(rows.shape[0])]), self.kernel)

    def _check_parameters(self) -> None:
        if self.gamma != "auto" and not (isinstance(self.gamma, int | float | np.number) and self.gamma >= 0):
            raise ValueError(f"gamma must be a number, at least 0, or 'auto'; got {self.gamma!r}")
        check_count("dim", self.dim)

    def _check_rows(self, X: ArrayLike, **options: Any) -> Any:
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], **options)

    def _check_input(
        self, X: ArrayLike, sample_domain: ArrayLike | None, *, reset: bool, least: int = 1
    ) -> tuple[Any, NDArray[np.bool_]]:
        rows = self._check_rows(X, reset=reset, ensure_min_samples=least)
        if sample_domain is None:
            raise ValueError(
                "sample_domain is needed: one integer for each row, > 0 for source rows and < 0 for target rows"
            )
        domain = np.asarray(sample_domain)
        if domain.shape != (rows.shape[0],):
            raise ValueError(
                f"sample_domain must have one entry for each of the {rows.shape[0]} rows; its shape is {domain.shape}"
            )
        if domain.dtype.kind not in "iuf" or not np.all(domain == np.round(domain)) or np.any(domain == 0):
            raise ValueError("sample_domain must hold integers, > 0 for source rows and < 0 for target rows")
        return rows, domain > 0

    @property
    def _n_features_out(self) -> int:
        return self._solve().weights.shape[1]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_solution")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def torch_dtype(rows: Any) -> torch.dtype:
    """Return torch's name for the precision of checked rows."""
    return torch.from_numpy(np.empty(0, rows.dtype)).dtype


def to_tensor(rows: Any) -> Tensor:
    """Return checked rows, dense or sparse, as a dense tensor."""
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return torch.from_numpy(np.require(dense, requirements=["C", "W"]))  # torch warns of read-only memory
