"""The mean embedding Σℓ of a domain, the MMD between two domains, and the proximal step that reduces it."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor


def mean_embedding(features: Tensor) -> Tensor:
    """Return the mean of the random features of one domain, Σℓ: 2N numbers for any sample size."""
    return features.mean(dim=0)


def mmd_loss(source: Tensor, target: Tensor, aligner: Tensor) -> Tensor:
    """Return the squared distance |W_RFᵀ(Σ_Sℓ_S + Σ_Tℓ_T)|² of two mean embeddings after alignment (eq. L_MMD).

    In the paper ℓ_T contains the minus sign; here both arguments are plain means.
    """
    return ((source - target) @ aligner).square().sum()


def proximal_step(aligner: Tensor, discrepancies: Tensor, gamma: float) -> Tensor:
    """Return γ(γI + VVᵀ)⁻¹W, the minimiser of |VᵀX|² + γ|X − W|² over X, for the discrepancies V (2N, or 2N × K).

    With V = U diag(s) Qᵀ, the result is W − U diag(s²/(γ+s²)) UᵀW. All factors are at most 1, so that only the
    decomposition of the K columns needs double precision, even if the columns are nearly equal. For γ = 0 the
    directions of V are projected away; for γ = ∞ nothing changes.
    """
    if not gamma >= 0:
        raise ValueError(f"gamma must be a number, at least 0; got {gamma!r}")
    if gamma == inf:
        return aligner.clone()
    columns = discrepancies.reshape(len(aligner), -1).double()
    directions, lengths, _ = torch.linalg.svd(columns, full_matrices=False)
    noise = torch.finfo(torch.float64).eps * len(aligner) * lengths[0]
    factors = torch.where(lengths > noise, lengths.square() / (gamma + lengths.square()), 0)
    coordinates = directions.T.to(aligner.dtype) @ aligner
    return torch.addmm(aligner, (directions * factors).to(aligner.dtype), coordinates, alpha=-1)
