"""Correlation alignment (Sun, Feng and Saenko, 2016)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedrf.estimators.base import DomainAligner, check_nonnegative, check_varied, to_tensor
from fedrf.estimators.principal import PrincipalAxes, principal_axes


class CORAL(DomainAligner):
    r"""Give the source rows the mean and the covariance of the target; target rows stay as they are.

    A source row x becomes (x − μ_S) C_S^(−1/2) C_T^(1/2) + μ_T, where each C is the covariance of one domain plus
    `reg` times its mean variance on the diagonal. For columns of variance 1, as in the paper, this adds `reg` itself;
    in general it makes the result independent of the unit of the features.

    Both powers are applied through the principal axes of their domain. No rows × rows matrix is formed, and with fewer
    rows than columns no columns × columns matrix either.

    Parameters
    ----------
    reg
        Weight of the identity, at least 0; 1 in the paper. skada's ``reg=r`` is r / (1 − r) here.

    Attributes
    ----------
    source_, target_
        `PrincipalAxes` of each domain.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.RandomState(0).randn(60, 5)
    >>> domain = np.repeat([1, -1], 30)
    >>> X[domain < 0] = 2 * X[domain < 0] + 1
    >>> Z = CORAL(reg=0).fit_transform(X, sample_domain=domain)
    >>> bool(np.allclose(np.cov(Z[domain > 0].T), np.cov(X[domain < 0].T)))
    True
    """

    source_: PrincipalAxes
    target_: PrincipalAxes

    def __init__(self, reg: float = 1.0) -> None:
        self.reg = reg

    def _check_parameters(self) -> None:
        check_nonnegative("reg", self.reg)

    def _learn(self, rows: Any, is_source: Tensor, y: object) -> None:
        dense = to_tensor(rows).double()
        source, target = dense[is_source], dense[~is_source]
        check_varied(source, "source")
        check_varied(target, "target")
        self.source_, self.target_, self._reg = principal_axes(source), principal_axes(target), float(self.reg)

    def _transform(self, rows: Any, is_source: Tensor) -> Tensor:
        aligned = to_tensor(rows).double().clone()
        if is_source.any():
            whitened = self.source_.times_power(aligned[is_source] - self.source_.mean, -0.5, self._ridge(self.source_))
            coloured = self.target_.times_power(whitened, 0.5, self._ridge(self.target_))
            aligned[is_source] = coloured + self.target_.mean
        return aligned

    def _ridge(self, domain: PrincipalAxes) -> float:
        return self._reg * float(domain.variances.sum()) / len(domain.mean)

    @property
    def _n_features_out(self) -> int:
        return len(self.target_.mean)
