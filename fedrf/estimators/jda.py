"""Joint distribution adaptation (Long, Wang, Ding, Sun and Yu, 2013)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrf.estimators.base import check_varied, to_tensor
from fedrf.estimators.components import resolve_sigma, unit_variance
from fedrf.estimators.joint_problem import JointProblem
from fedrf.estimators.kernel import KernelRows, check_memory
from fedrf.estimators.labelled import LabelledAligner
from fedrf.tca.problems import check_gamma
from fedrf.tca.random_features import KERNELS, check_count


class JDA(LabelledAligner):
    r"""Align the means of the domains and the means of each class, with pseudo-labels for the target.

    This is TCA with one more discrepancy per class: minimise Σ_c |Wᵀv_c|² + γ|W|² subject to WᵀSW = I, where v_0 is the
    difference of the domain means, v_c the difference of the means of class c, and S the total scatter. The first
    solution uses v_0 only. Then each target row gets the label of the nearest source row after alignment, and the
    problem is solved again until these pseudo-labels no longer change.

    With the discrepancies in the columns of V = U diag(s) Qᵀ, the components are W = P·Y, where
    P = (I + VVᵀ/γ)^(−1/2) multiplies each direction uᵢ by (1 + sᵢ²/γ)^(−1/2) and keeps all others, and Y has the
    leading eigenvectors of the symmetric matrix PSP. For the linear kernel this is a columns × columns problem. For the
    other kernels the features of a sample are its row of the kernel matrix, and the problem is rows × rows.

    Parameters
    ----------
    dim
        m, the number of components; at most the number of columns (linear kernel) or of rows (other kernels).
    sigma
        σ, the width of a non-linear kernel, or ``"median"`` for the median distance between rows.
    gamma
        γ ≥ 0 (λ in the paper of JDA). Small: all these means must coincide. Large: plain principal components.
        ``"auto"`` is the mean of |v_c|², reduced if the discrepancies have more variance than the weakest of the dim
        components; with v_0 alone it equals the ``"auto"`` of TCA.
    kernel
        ``linear``, ``gaussian``, ``laplace`` or ``cauchy``.
    whiten
        Scale every component to unit variance. If False, components keep their relative variances and the mean is one.
    max_iter
        Maximum number of times that the problem is solved and the target is labelled.

    Attributes
    ----------
    aligner_, eigenvalues_
        W, one component per column, and the variance of each component times n.
    gamma_
        γ of the last solution.
    pseudo_labels_
        Labels that were assigned to the target rows, in their order.
    n_iter_
        Number of times that the problem was solved.

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
        """σ of the kernel; not defined for the linear kernel."""
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
        history: list[Tensor] = []  # the pseudo-labels of each iteration
        while len(history) < self.max_iter and not (len(history) > 1 and history[-1].equal(history[-2])):
            discrepancies = problem.discrepancies(history[-1] if history else None)
            auto = self.gamma == "auto"
            gamma = problem.balanced_gamma(discrepancies) if auto else float(self.gamma)
            solution = problem.solve(discrepancies, gamma)
            weights, _ = unit_variance(solution, len(features), self.whiten)
            history.append(problem.nearest_labels(weights))
        self._kernel_rows, self._mean = kernel_rows, mean
        self.aligner_, self.eigenvalues_, self.gamma_ = weights.numpy(), solution.eigenvalues.numpy(), gamma
        self.pseudo_labels_, self.n_iter_ = classes[history[-1]], len(history)

    def _features(self, rows: Any) -> tuple[KernelRows | None, Tensor]:
        """Return the feature map, None for the identity, and the features of these rows."""
        dense, (count, columns) = to_tensor(rows).double(), rows.shape
        limit, unit = (columns, "columns") if self.kernel == "linear" else (count, "rows")
        if self.dim > limit:
            raise ValueError(f"dim must be at most the number of {unit}, {limit}; got {self.dim}")
        check_varied(dense)
        if self.kernel == "linear":
            return None, dense
        check_memory(count, "the linear kernel only needs a columns × columns matrix")
        kernel_rows = KernelRows(dense, resolve_sigma(self.sigma, self.kernel, rows), self.kernel)
        return kernel_rows, kernel_rows(dense)

    def _transform(self, rows: Any, is_source: Tensor) -> Tensor:
        dense = to_tensor(rows).double()
        features = dense if self._kernel_rows is None else self._kernel_rows(dense)
        return (features - self._mean) @ torch.from_numpy(self.aligner_)

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)
