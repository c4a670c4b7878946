"""Principal axes of one domain, used by CORAL, GFK and subspace alignment."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedrf.estimators.base import check_varied
from fedrf.tca.eigen import canonical_signs, leading_eigenpairs, noise_level


class PrincipalAxes(NamedTuple):
    """The directions in which rows vary, in the columns of `axes`, and the variance along each, decreasing.

    If rows are few or linearly dependent, there are fewer axes than columns. The variance orthogonal to them is zero.
    """

    mean: Tensor
    variances: Tensor
    axes: Tensor

    def times_power(self, rows: Tensor, exponent: float, ridge: float) -> Tensor:
        """Return rows · (C + ridge·I)^exponent for the covariance C, without forming it.

        With C = A diag(v) Aᵀ the power is (v + ridge)^exponent along the axes A and ridge^exponent orthogonal to them.
        For ridge = 0 the orthogonal part is dropped, as in a pseudo-inverse.
        """
        complete = self.axes.shape[0] == self.axes.shape[1]
        orthogonal = 0.0 if complete or ridge == 0 else ridge**exponent
        along = (self.variances + ridge) ** exponent - orthogonal
        return rows * orthogonal + ((rows @ self.axes) * along) @ self.axes.T


def principal_axes(rows: Tensor, count: int | None = None) -> PrincipalAxes:
    """Return the leading `count` axes of the rows, or all; axes whose variance is rounding error are left out.

    They come from the covariance, or from a thin singular value decomposition if there are fewer rows than columns.
    """
    size, width = rows.shape
    mean = rows.mean(0)
    centred = rows - mean
    if size < width:
        _, lengths, transposed = torch.linalg.svd(centred, full_matrices=False)
        variances, axes = lengths.square() / size, canonical_signs(transposed.T)
    else:
        variances, axes = leading_eigenpairs(centred.T @ centred / size, min(count or width, width))
    rank = int((variances > noise_level(rows.dtype) * centred.square().sum() / size).sum())
    kept = min(rank, count or rank)
    return PrincipalAxes(mean, variances[:kept], axes[:, :kept])


def subspaces(rows: Tensor, is_source: Tensor, dim: int) -> tuple[PrincipalAxes, PrincipalAxes]:
    """Return the `dim` leading axes of the source and of the target, or raise a ValueError if one has fewer."""
    both = []
    for name, members in (("source", is_source), ("target", ~is_source)):
        check_varied(rows[members], name)
        axes = principal_axes(rows[members], dim)
        rank = len(axes.variances)
        if rank < dim:
            raise ValueError(
                f"dim must be at most {rank}, the number of directions in which the {name} rows vary; got {dim}"
            )
        both.append(axes)
    return both[0], both[1]
