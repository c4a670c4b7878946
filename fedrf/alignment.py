"""What two domains compare: the mean embedding Σℓ of each, and the MMD between two of them."""

from __future__ import annotations

from torch import Tensor


def mean_embedding(features: Tensor) -> Tensor:
    """Mean of the random features of one domain, Σℓ of the paper: 2N numbers, whatever the sample size."""
    return features.mean(dim=0)


def mmd_loss(source: Tensor, target: Tensor, aligner: Tensor) -> Tensor:
    """Squared distance |W_RFᵀ(Σ_Sℓ_S + Σ_Tℓ_T)|² between two mean embeddings after alignment (eq. L_MMD).

    The paper puts the minus sign into ℓ_T; here both arguments are plain means.
    """
    return ((source - target) @ aligner).square().sum()
