"""The two aligners that work with the exact n × n kernel matrix."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import psutil
from torch import Tensor

from fedrf.estimators.base import DomainAligner, to_tensor, torch_dtype
from fedrf.features import kernel_matrix
from fedrf.tca import GramProblem, Problem

MATRICES_IN_MEMORY = 7  # kernel, Gram and centred matrix; a basis, the matrix in it, a copy and its vectors


class KernelAligner(DomainAligner):
    """Base of vanilla TCA and R-TCA: quadratic in the number of rows, cubic for TCA. For more rows use `RFTCA`."""

    rows_: Tensor
    kernel_matrix_: Tensor
    problem_: GramProblem

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
    def _pose(self, is_source: Tensor) -> GramProblem:
        """State the method's problem for `kernel_matrix_`."""

    def _collect(self, rows: Any, is_source: Tensor) -> None:
        count = rows.shape[0]
        if self.dim > count:
            raise ValueError(f"dim must be at most the number of rows, {count}; got {self.dim}")
        needed, free = 8 * MATRICES_IN_MEMORY * count**2, psutil.virtual_memory().available
        if needed > free:
            raise ValueError(
                f"{count} rows need about {needed / 1e9:.0f} GB for the kernel matrix and {free / 1e9:.0f} GB are "
                "free; RFTCA needs memory for its features only"
            )
        sigma, dense = self._resolve_sigma(rows), to_tensor(rows).double()
        self.kernel_matrix_ = kernel_matrix(dense, dense, sigma, self.kernel)
        self.sigma_, self.rows_ = sigma, dense
        self._dtype = torch_dtype(rows)
        self.problem_ = self._pose(is_source)

    def _problem(self) -> Problem:
        return self.problem_

    def _discrepancy(self) -> Tensor:
        return self.kernel_matrix_ @ self.problem_.labels

    def _mmd_before(self) -> float:
        variance = self.kernel_matrix_.diagonal().mean() - self.kernel_matrix_.mean()
        return max(0.0, float(self.problem_.labels @ self._discrepancy() / variance))

    def _transform(self, rows: Any) -> Tensor:
        cross = kernel_matrix(to_tensor(rows).double(), self.rows_, self.sigma_, self.kernel)
        return ((cross - self.kernel_matrix_.mean(0)) @ self._solve().weights).to(self._dtype)

    @property
    def _num_samples(self) -> int:
        return len(self.rows_)
