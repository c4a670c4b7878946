"""What two domains compare: the mean embedding Σℓ of each, the MMD between two of them, and the step against it."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor


def mean_embedding(features: Tensor) -> Tensor:
    """Mean of the random features of one domain, Σℓ of the paper: 2N numbers, whatever the sample size."""
    return features.mean(dim=0)


def mmd_loss(source: Tensor, target: Tensor, aligner: Tensor) -> Tensor:
    """Squared distance |W_RFᵀ(Σ_Sℓ_S + Σ_Tℓ_T)|² between two mean embeddings after alignment (eq. L_MMD).

    The paper puts the minus sign into ℓ_T; here both arguments are plain means.
    """
    return ((source - target) @ aligner).square().sum()


def proximal_step(aligner: Tensor, discrepancies: Tensor, gamma: float) -> Tensor:
    """Return γ(γI + VVᵀ)⁻¹W, the minimiser of |VᵀX|² + γ|X − W|² over X, for the discrepancies V (2N, or 2N × K).

    By Sherman–Morrison–Woodbury it is W − V(γI + VᵀV)⁻¹VᵀW: only a K × K matrix is inverted, in double precision.
    For γ = 0 the directions of V are projected away; for γ = ∞ nothing changes.
    """
    if not gamma >= 0:
        raise ValueError(f"gamma must be a number, at least 0; got {gamma!r}")
    if gamma == inf:
        return aligner.clone()
    columns = discrepancies.reshape(len(aligner), -1).double()
    small = columns.T @ columns + gamma * torch.eye(columns.shape[1], dtype=torch.float64, device=columns.device)
    pull = columns @ (torch.linalg.pinv(small, hermitian=True) @ (columns.T @ aligner.double()))
    moved: Tensor = aligner.double() - pull
    return moved.to(aligner.dtype)
