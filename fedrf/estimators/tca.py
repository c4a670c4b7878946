"""Vanilla transfer component analysis (paper, section II-B)."""

from __future__ import annotations

from torch import Tensor

from fedrf.estimators.kernel import KernelAligner
from fedrf.tca.problems import GramProblem


class TCA(KernelAligner):
    """Minimise the MMD after projection plus γ|W|², W acting on the rows of the kernel matrix K.

    Exact, and cubic in the number of rows: the reference for `RTCA` and `RFTCA`.

    Parameters
    ----------
    dim
        m, the number of components; at most the number of rows.
    sigma
        σ, the width of the kernel, or ``"median"`` for the median distance between rows.
    gamma
        γ ≥ 0. Small: the domain means must coincide. Large: plain kernel PCA. ``"auto"`` is the geometric mean of
        the ends of `informative_gamma_range`.
    kernel
        ``gaussian``, ``laplace`` or ``cauchy``.
    whiten
        Scale every component to unit variance. If False, components keep their relative variances and the mean is one.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.RandomState(0).randn(60, 5)
    >>> domain = np.repeat([1, -1], 30)
    >>> X[domain < 0] += 1
    >>> TCA(dim=3, gamma=0.01).fit(X, sample_domain=domain).transform(X).shape
    (60, 3)
    """

    def _make_problem(self, is_source: Tensor) -> GramProblem:
        return GramProblem.vanilla(self.kernel_matrix_, is_source)
