"""The base class of the two aligners that use the exact n × n kernel matrix."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import psutil
from torch import Tensor

from fedrf.estimators.base import to_tensor
from fedrf.estimators.components import ComponentAligner, resolve_sigma
from fedrf.tca.problems import GramProblem, Problem
from fedrf.tca.random_features import kernel_matrix

MATRICES_IN_MEMORY = 7  # kernel, Gram and centred matrix; basis, matrix in the basis, its copy and eigenvectors


class KernelRows(NamedTuple):
    """The map of a sample to its row of the kernel matrix: its kernel with each row of `rows`."""

    rows: Tensor
    sigma: float
    kernel: str

    def __call__(self, samples: Tensor) -> Tensor:
        """Return the features of these samples."""
        return kernel_matrix(samples, self.rows, self.sigma, self.kernel)


class KernelAligner(ComponentAligner):
    """Base class of vanilla TCA and R-TCA. Time is quadratic in the rows, cubic for TCA; `RFTCA` is linear."""

    kernel_matrix_: Tensor
    problem_: GramProblem
    _kernel_rows: KernelRows

    def __init__(
        self,
        dim: int = 100,
        sigma: float | str = "median",
        gamma: float | str = 1.0,
        kernel: str = "gaussian",
        whiten: bool = False,
    ) -> None:
        self.dim = dim
        self.sigma = sigma
        self.gamma = gamma
        self.kernel = kernel
        self.whiten = whiten

    @abstractmethod
    def _make_problem(self, is_source: Tensor) -> GramProblem:
        """Return the problem of the method for `kernel_matrix_`."""

    def _collect(self, rows: Any, is_source: Tensor) -> None:
        count = rows.shape[0]
        if self.dim > count:
            raise ValueError(f"dim must be at most the number of rows, {count}; got {self.dim}")
        check_memory(count, "RFTCA only needs memory for its features")
        kernel_rows = KernelRows(to_tensor(rows).double(), resolve_sigma(self.sigma, self.kernel, rows), self.kernel)
        self.kernel_matrix_ = kernel_rows(kernel_rows.rows)
        self.sigma_, self._kernel_rows = kernel_rows.sigma, kernel_rows
        self.problem_ = self._make_problem(is_source)

    def _problem(self) -> Problem:
        return self.problem_

    def _discrepancy(self) -> Tensor:
        return self.kernel_matrix_ @ self.problem_.domain_weights

    def _mmd_before(self) -> float:
        variance = self.kernel_matrix_.diagonal().mean() - self.kernel_matrix_.mean()
        return max(0.0, float(self.problem_.domain_weights @ self._discrepancy() / variance))

    def _transform(self, rows: Any, is_source: Tensor) -> Tensor:
        cross = self._kernel_rows(to_tensor(rows).double())
        return (cross - self.kernel_matrix_.mean(0)) @ self._solve().weights


def check_memory(count: int, alternative: str) -> None:
    """Raise a ValueError, with an alternative, if the kernel matrices of `count` rows do not fit into memory."""
    needed, free = 8 * MATRICES_IN_MEMORY * count**2, psutil.virtual_memory().available
    if needed > free:
        raise ValueError(
            f"{count} rows need about {needed / 1e9:.0f} GB for the kernel matrix and {free / 1e9:.0f} GB are "
            f"free; {alternative}"
        )
