"""Regularised transfer component analysis, the step between TCA and RF-TCA (paper, section III-B)."""

from __future__ import annotations

from torch import Tensor

from fedrf.estimators.kernel import KernelAligner
from fedrf.tca.problems import GramProblem


class RTCA(KernelAligner):
    """Minimise the MMD after projection plus γ tr(WᵀKW): TCA with the penalty in the kernel's own space.

    `RFTCA` converges to R-TCA as the number of random features grows. The parameters are those of `TCA`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.RandomState(0).randn(60, 5)
    >>> domain = np.repeat([1, -1], 30)
    >>> X[domain < 0] += 1
    >>> aligner = RTCA(dim=3, gamma=0.01).fit(X, sample_domain=domain)
    >>> aligner.mmd_.after < aligner.mmd_.before
    True
    """

    def _make_problem(self, is_source: Tensor) -> GramProblem:
        return GramProblem.regularised(self.kernel_matrix_, is_source)
