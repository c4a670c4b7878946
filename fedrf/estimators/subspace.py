"""Subspace alignment (Fernando, Habrard, Sebban and Tuytelaars, 2013)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedrf.estimators.base import DomainAligner, to_tensor
from fedrf.estimators.principal import PrincipalAxes, subspaces
from fedrf.tca.random_features import check_count


class SubspaceAlignment(DomainAligner):
    """Rotate the principal axes of the source towards those of the target.

    With the leading axes P_S and P_T of the domains, a target row has the coordinates (x − μ_T) P_T, and a source row
    (x − μ_S) P_S M, where M = P_Sᵀ P_T minimises the distance of P_S M to P_T.

    Parameters
    ----------
    dim
        m, the number of axes of each domain; at most the number of directions in which its rows vary.

    Attributes
    ----------
    source_, target_
        `PrincipalAxes` of each domain.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.RandomState(0).randn(60, 5)
    >>> domain = np.repeat([1, -1], 30)
    >>> SubspaceAlignment(dim=3).fit_transform(X, sample_domain=domain).shape
    (60, 3)
    """

    source_: PrincipalAxes
    target_: PrincipalAxes

    def __init__(self, dim: int = 20) -> None:
        self.dim = dim

    def _check_parameters(self) -> None:
        check_count("dim", self.dim)

    def _learn(self, rows: Any, is_source: Tensor, y: object) -> None:
        self.source_, self.target_ = subspaces(to_tensor(rows).double(), is_source, self.dim)

    def _transform(self, rows: Any, is_source: Tensor) -> Tensor:
        dense = to_tensor(rows).double()
        source, target = self.source_, self.target_
        aligned = (dense - target.mean) @ target.axes
        if is_source.any():
            rotated_axes = source.axes @ (source.axes.T @ target.axes)
            aligned[is_source] = (dense[is_source] - source.mean) @ rotated_axes
        return aligned

    @property
    def _n_features_out(self) -> int:
        return self.target_.axes.shape[1]
