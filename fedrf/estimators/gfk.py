"""The geodesic flow kernel (Gong, Shi, Sha and Grauman, 2012)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrf.estimators.base import DomainAligner, to_tensor
from fedrf.estimators.principal import subspaces
from fedrf.tca.random_features import check_count


class GFK(DomainAligner):
    r"""Compare rows by their projections onto all subspaces between the source subspace and the target subspace.

    Let Φ(t) be the geodesic from the principal axes of the source (t = 0) to those of the target (t = 1). The kernel is
    the mean of the inner products along the geodesic, xᵀGy with G = ∫₀¹ Φ(t)Φ(t)ᵀ dt.

    The singular value decomposition of P_SᵀP_T pairs the axes: unit vectors aᵢ of the source and bᵢ of the target at
    the principal angle θᵢ. Each pair spans a plane orthogonal to all others, in which the geodesic rotates aᵢ into bᵢ.
    With s = t − ½, eᵢ ∝ aᵢ + bᵢ and fᵢ ∝ bᵢ − aᵢ, the rotated vector is cos(sθᵢ) eᵢ + sin(sθᵢ) fᵢ for −½ ≤ s ≤ ½. The
    mixed terms are odd in s and vanish, and

        G = Σᵢ (½ + sin θᵢ / 2θᵢ) eᵢeᵢᵀ + (½ − sin θᵢ / 2θᵢ) fᵢfᵢᵀ.

    Hence the orthogonal columns √(½ ± …) eᵢ, fᵢ are a factor of G. `transform` multiplies by this factor, and the inner
    products of the 2·dim coordinates are the kernel. Neither G nor the complement of P_S is formed.

    Parameters
    ----------
    dim
        m, the dimension of the subspaces; at most the number of directions in which the rows of each domain vary.

    Attributes
    ----------
    factor_
        columns × 2·dim, with G = factor_ · factor_ᵀ.
    angles_
        The principal angles θ between the subspaces, increasing.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.RandomState(0).randn(60, 5)
    >>> domain = np.repeat([1, -1], 30)
    >>> GFK(dim=2).fit_transform(X, sample_domain=domain).shape
    (60, 4)
    """

    factor_: NDArray[np.float64]
    angles_: NDArray[np.float64]

    def __init__(self, dim: int = 20) -> None:
        self.dim = dim

    def _check_parameters(self) -> None:
        check_count("dim", self.dim)

    def _learn(self, rows: Any, is_source: Tensor, y: object) -> None:
        source, target = subspaces(to_tensor(rows).double(), is_source, self.dim)
        left, _, right = torch.linalg.svd(source.axes.T @ target.axes)
        source_axes, target_axes = source.axes @ left, target.axes @ right.T
        sums, differences = source_axes + target_axes, target_axes - source_axes
        # Their lengths are 2 cos(θ/2) and 2 sin(θ/2). The singular values, cos θ, would be inaccurate for small θ.
        angles = 2 * torch.atan2(differences.norm(dim=0), sums.norm(dim=0))
        weights = _difference_weights(angles)
        columns = [_with_length(sums, (1 - weights).sqrt()), _with_length(differences, weights.sqrt())]
        self.factor_, self.angles_ = torch.cat(columns, dim=1).numpy(), angles.numpy()

    def _transform(self, rows: Any, is_source: Tensor) -> Tensor:
        return to_tensor(rows).double() @ torch.from_numpy(self.factor_)

    @property
    def _n_features_out(self) -> int:
        return 2 * len(self.angles_)


def _difference_weights(angles: Tensor) -> Tensor:
    """Return ½ − sin θ / 2θ, by its power series for small θ, where the difference would cancel."""
    square = angles.square()
    series = square / 12 * (1 - square / 20 * (1 - square / 42))
    return torch.where(angles < 0.01, series, 0.5 - angles.sin() / (2 * angles))


def _with_length(columns: Tensor, lengths: Tensor) -> Tensor:
    """Scale the columns to these lengths; columns of zeros stay."""
    norms = columns.norm(dim=0)
    return columns * torch.where(norms > 0, lengths / norms, 0.0)
