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

    With V = U diag(s) Qᵀ it is W − U diag(s²/(γ+s²)) UᵀW. All factors are at most 1, so that only the decomposition of
    the K columns needs double precision, however alike they are. For γ = 0 the directions of V are projected away; for
    γ = ∞ nothing changes.
    """
    if not gamma >= 0:
        raise ValueError(f"gamma must be a number, at least 0; got {gamma!r}")
    if gamma == inf:
        return aligner.clone()
    columns = discrepancies.reshape(len(aligner), -1).double()
    directions, lengths, _ = torch.linalg.svd(columns, full_matrices=False)
    noise = torch.finfo(torch.float64).eps * len(aligner) * lengths[0]
    shares = torch.where(lengths > noise, lengths.square() / (gamma + lengths.square()), 0)
    across = directions.T.to(aligner.dtype) @ aligner
    return torch.addmm(aligner, (directions * shares).to(aligner.dtype), across, alpha=-1)
