"""Principal axes of one domain, on which CORAL, GFK and subspace alignment are built."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedrf.estimators.base import check_varied
from fedrf.tca.eigen import canonical_signs, leading_eigenpairs


class PrincipalAxes(NamedTuple):
    """The directions in which rows vary, in columns, with the variance along each, decreasing.

    Fewer than there are columns where rows are few or depend on each other: the variance across them is zero.
    """

    mean: Tensor
    variances: Tensor
    axes: Tensor

    def times_power(self, rows: Tensor, exponent: float, ridge: float) -> Tensor:
        """Return rows · (C + ridge·I)^exponent for the covariance C, without forming it.

        With C = A diag(v) Aᵀ the power is ridge^exponent across the axes A and (v + ridge)^exponent along them. For
        ridge = 0 what lies across is dropped, as by a pseudo-inverse.
        """
        complete = self.axes.shape[0] == self.axes.shape[1]
        across = 0.0 if complete or ridge == 0 else ridge**exponent
        along = (self.variances + ridge) ** exponent - across
        return rows * across + ((rows @ self.axes) * along) @ self.axes.T


def principal_axes(rows: Tensor, count: int | None = None) -> PrincipalAxes:
    """Return the leading `count` axes of the rows, or all; axes that do not stand out from rounding error are no axes.

    The smaller side decides: a covariance where rows are many, a thin decomposition of the rows where columns are.
    """
    size, width = rows.shape
    mean = rows.mean(0)
    centred = rows - mean
    if size < width:
        _, lengths, transposed = torch.linalg.svd(centred, full_matrices=False)
        variances, axes = lengths.square() / size, canonical_signs(transposed.T)
    else:
        variances, axes = leading_eigenpairs(centred.T @ centred / size, min(count or width, width))
    rank = int((variances > 32 * torch.finfo(rows.dtype).eps * centred.square().sum() / size).sum())
    kept = min(rank, count or rank)
    return PrincipalAxes(mean, variances[:kept], axes[:, :kept])


def subspaces(rows: Tensor, is_source: Tensor, dim: int) -> tuple[PrincipalAxes, PrincipalAxes]:
    """Return the `dim` leading axes of the source and of the target, or raise a ValueError where one has fewer."""
    found = []
    for name, members in (("source", is_source), ("target", ~is_source)):
        check_varied(rows[members], name)
        axes = principal_axes(rows[members], dim)
        rank = len(axes.variances)
        if rank < dim:
            raise ValueError(
                f"dim must be at most {rank}, the number of directions in which the {name} rows vary; got {dim}"
            )
        found.append(axes)
    return found[0], found[1]
