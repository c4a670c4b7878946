"""Joint distribution adaptation (Long, Wang, Ding, Sun and Yu, 2013)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrf.estimators.base import check_varied, to_tensor
from fedrf.estimators.components import check_gamma, resolve_sigma, unit_variance
from fedrf.estimators.joint_problem import JointProblem
from fedrf.estimators.kernel import KernelRows, check_memory
from fedrf.estimators.labelled import LabelledAligner
from fedrf.tca.random_features import KERNELS, check_count


class JDA(LabelledAligner):
    r"""Bring together the means of the domains and those of each class, with guessed labels for the target.

    TCA with one discrepancy more for each class: minimise Σ_c |Wᵀv_c|² + γ|W|² subject to WᵀSW = I, where v_0 is the
    difference of the domain means, v_c that of the means of class c, and S the total scatter. The labels of the target
    are first unknown, so that only v_0 counts, and then those of the nearest source rows after alignment; the problem
    is solved again until they stay as they are.

    With the discrepancies in the columns of V = U diag(s) Qᵀ, the components are W = P·Y, where
    P = (I + VVᵀ/γ)^(−1/2) multiplies each direction uᵢ by (1 + sᵢ²/γ)^(−1/2) and leaves all others alone, and Y has the
    leading eigenvectors of the symmetric matrix PSP. That is a columns × columns problem for the linear kernel. For the
    others a sample's features are its row of the kernel matrix, and everything is as large as the rows are many.

    Parameters
    ----------
    dim
        m, the number of components; at most the number of columns, or of rows where the kernel is not linear.
    sigma
        σ, the width of a kernel that is not linear, or ``"median"`` for the median distance between rows.
    gamma
        γ ≥ 0 (λ in the paper of JDA). Small: all those means must coincide. Large: plain principal components.
        ``"auto"`` takes the mean of |v_c|², and less where dim components would not see them; with v_0 alone that is
        TCA's.
    kernel
        ``linear``, ``gaussian``, ``laplace`` or ``cauchy``.
    whiten
        Give every component unit variance. Otherwise strong ones keep their weight and the mean variance is one.
    max_iter
        How often the problem is solved, and labels are guessed, at most.

    Attributes
    ----------
    aligner_, eigenvalues_
        W, one component a column, and what each component varies, as a sum over the samples.
    gamma_
        γ of the last solution.
    pseudo_labels_
        What the target rows were taken for, in their order.
    n_iter_
        How often the problem was solved.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.RandomState(0).randn(60, 5)
    >>> domain, y = np.repeat([1, -1], 30), np.arange(60) % 2
    >>> X[:, 0] += 6 * y + (domain < 0)
    >>> jda = JDA(dim=3).fit(X, np.where(domain > 0, y, -1), sample_domain=domain)
    >>> bool((jda.pseudo_labels_ == y[domain < 0]).all())
    True
    """

    aligner_: NDArray[np.float64]
    eigenvalues_: NDArray[np.float64]
    gamma_: float
    pseudo_labels_: NDArray[Any]
    n_iter_: int
    _kernel_rows: KernelRows | None

    def __init__(
        self,
        dim: int = 20,
        sigma: float | str = "median",
        gamma: float | str = "auto",
        kernel: str = "linear",
        whiten: bool = False,
        max_iter: int = 10,
    ) -> None:
        self.dim = dim
        self.sigma = sigma
        self.gamma = gamma
        self.kernel = kernel
        self.whiten = whiten
        self.max_iter = max_iter

    @property
    def sigma_(self) -> float:
        """σ of the kernel in use; the linear kernel has none."""
        if self._kernel_rows is None:
            raise AttributeError("the linear kernel has no sigma_")
        return self._kernel_rows.sigma

    def _check_parameters(self) -> None:
        check_gamma(self.gamma)
        check_count("dim", self.dim)
        check_count("max_iter", self.max_iter)
        if self.kernel not in (*KERNELS, "linear"):
            raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, linear; got {self.kernel!r}")

    def _learn_classes(self, rows: Any, is_source: Tensor, codes: Tensor, classes: Any) -> None:
        kernel_rows, features = self._features(rows)
        mean = features.mean(0)
        problem = JointProblem(features - mean, is_source, codes, len(classes), self.dim)
        guesses: list[Tensor] = []
        while len(guesses) < self.max_iter and not (len(guesses) > 1 and guesses[-1].equal(guesses[-2])):
            discrepancies = problem.discrepancies(guesses[-1] if guesses else None)
            auto = self.gamma == "auto"
            gamma = problem.balanced_gamma(discrepancies) if auto else float(self.gamma)
            solution = problem.solve(discrepancies, gamma)
            weights, _ = unit_variance(solution, len(features), self.whiten)
            guesses.append(problem.nearest_labels(weights))
        self._kernel_rows, self._mean = kernel_rows, mean
        self.aligner_, self.eigenvalues_, self.gamma_ = weights.numpy(), solution.eigenvalues.numpy(), gamma
        self.pseudo_labels_, self.n_iter_ = classes[guesses[-1]], len(guesses)

    def _features(self, rows: Any) -> tuple[KernelRows | None, Tensor]:
        """Return the map that makes features of a sample, None for the identity, and those of these rows."""
        dense, (count, columns) = to_tensor(rows).double(), rows.shape
        limit, what = (columns, "columns") if self.kernel == "linear" else (count, "rows")
        if self.dim > limit:
            raise ValueError(f"dim must be at most the number of {what}, {limit}; got {self.dim}")
        check_varied(dense)
        if self.kernel == "linear":
            return None, dense
        check_memory(count, "the linear kernel needs a matrix of columns × columns only")
        kernel_rows = KernelRows(dense, resolve_sigma(self.sigma, self.kernel, rows), self.kernel)
        return kernel_rows, kernel_rows(dense)

    def _transform(self, rows: Any, is_source: Tensor) -> Tensor:
        dense = to_tensor(rows).double()
        features = dense if self._kernel_rows is None else self._kernel_rows(dense)
        return (features - self._mean) @ torch.from_numpy(self.aligner_)

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)
