"""Scores of a model for which nobody needs labels of the target; `selection` says which way each points.

============= ============ ==================================================================================
score         computed by  what it is
============= ============ ==================================================================================
`information` the target   `information.information`: diverse over all, confident on each (Shi & Sha 2012)
`entropy`     the target   mean of `information.entropy`: confident on each (Morerio et al. 2018)
`density`     the target   soft neighbourhood density (Saito et al. 2021)
`validation`  each source  accuracy on samples that it holds out
`dev`         each source  deep embedded validation (You et al. 2019): risk on those, weighted by the density ratio
============= ============ ==================================================================================
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

ROWS = 2048  # at most, where cost grows with the square of samples or features
BLOCK = 512
TEMPERATURE = 0.05  # of Saito et al.
FREQUENCIES = 256
RIDGES = torch.logspace(-4, 0, 9, dtype=torch.float64)  # ρ as shares of the features' variance


def evenly(count: int, most: int = ROWS) -> NDArray[np.int64]:
    """Return at most so many of `count` positions, spread evenly: samples often lie sorted by class."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


@torch.no_grad()
def density(probabilities: Tensor) -> Tensor:
    """Return the mean entropy of the samples' neighbours: high where predictions form dense clusters.

    A sample's neighbours are a softmax, at temperature 0.05, of its cosine similarity to all others, by predictions. Of
    more than 2,048 samples, so many are compared, spread evenly; never all pairs at once.
    """
    directions = normalize(probabilities[torch.from_numpy(evenly(len(probabilities))).to(probabilities.device)])
    entropies = []
    for start in range(0, len(directions), BLOCK):
        similarities = directions[start : start + BLOCK] @ directions.T / TEMPERATURE
        similarities.diagonal(start).fill_(-torch.inf)
        entropies.append(torch.special.entr(similarities.softmax(1)).sum(1))
    return torch.cat(entropies).mean()


@torch.no_grad()
def importance_weights(training: Tensor, held_out: Tensor, target_mean: Tensor) -> Tensor:
    """Estimate the density ratio target / source at held-out samples of a source, from nothing of the target but Σℓ.

    Unconstrained least-squares importance fitting (Kanamori et al. 2009), with random features for a basis:
    w(x) = 1 + θᵀ(Σ(x) − μ), μ being the source's mean, minimises E_source[w²]/2 − E_target[w] + ρ|θ|²/2 for
    (Cov + ρI) θ = Σℓ − μ, as E_target[w] takes no more than Σℓ. The constant is not penalised: a large ρ means equal
    weights. Which ρ, leaving out one sample of the source at a time tells. Ratios below 0 become 0, and then the mean
    over the training samples 1, which is that of the true ratio.

    Parameters
    ----------
    training, held_out
        Random features of the source; the first 256 frequencies are used, which bounds the cost for any N.
    target_mean
        Σℓ of the target.
    """
    known, fresh, target = (_basis(values) for values in (training, held_out, target_mean))
    count, mean = len(known), known.mean(0)
    values, vectors = torch.linalg.eigh((known - mean).T @ (known - mean) / count)
    known, fresh, shift = (known - mean) @ vectors, (fresh - mean) @ vectors, (target - mean) @ vectors
    tiny = torch.finfo(values.dtype).eps
    best, slope = torch.inf, torch.zeros_like(shift)
    for ridge in RIDGES * values.sum().clamp(min=tiny):
        inverse = 1 / (values.clamp(min=0) + ridge)
        ratios = 1 + known @ (inverse * shift)
        spared = 1 - (1 + known.square() @ inverse) / count  # 1 − leverage
        left_out = ratios / spared * (1 - 1 / count)
        gain = (1 + shift.square() @ inverse + (ratios.square() / spared).mean() / count) * (1 - 1 / count)
        risk = float(left_out.square().mean() / 2 - gain)
        if risk < best:
            best, slope = risk, inverse * shift
    weights: Tensor = (1 + fresh @ slope).clamp(min=0) / (1 + known @ slope).clamp(min=0).mean()
    return weights


def _basis(features: Tensor) -> Tensor:
    """Return cosines and sines of the first frequencies."""
    waves: Tensor = features.double().unflatten(-1, (2, -1))
    return waves[..., :FREQUENCIES].flatten(-2)


def deep_embedded_validation(losses: Tensor, weights: Tensor) -> Tensor:
    """Return the risk on the target: the mean of the weighted losses, with the weights, of known mean 1, as control."""
    weighted = weights * losses
    covariance = torch.cov(torch.stack([weighted, weights]))
    control = -covariance[0, 1] / covariance[1, 1] if covariance[1, 1] > 0 else torch.zeros_like(covariance[0, 1])
    return weighted.mean() + control * (weights.mean() - 1)
