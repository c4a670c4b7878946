"""Scores of a model that need no target labels; `selection` says whether higher or lower is better.

============= ============ ==================================================================================
score         computed by  definition
============= ============ ==================================================================================
`information` the target   `information.information`: diverse over all, confident on each (Shi & Sha 2012)
`entropy`     the target   mean of `information.entropy`: confident on each (Morerio et al. 2018)
`density`     the target   soft neighbourhood density (Saito et al. 2021)
`bnm`         the target   nuclear norm of the predictions (Cui et al. 2020): as `information`, without logarithms
`classami`    the target   agreement of predictions and clusters of aligned features (Musgrave et al. 2022)
`mixval`      the target   consistency of predictions for mixed pairs of samples (Hu et al. 2023)
`validation`  each source  accuracy on held-out samples
`importance`  each source  accuracy on held-out samples, weighted by the density ratio (Sugiyama et al. 2007)
`dev`         each source  deep embedded validation (You et al. 2019): held-out risk, weighted by the density ratio
============= ============ ==================================================================================

`classami` and `mixval` are in `fedrf.adaptation.model_scores`, because they need more than predictions.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from fedrf.tca.precision import in_double

MAX_SAMPLES = 2048  # for computations whose cost is quadratic in the number of samples or features
DENSITY_BLOCK = 512  # rows of the similarity matrix that are in memory at a time
TEMPERATURE = 0.05  # as in Saito et al.
MAX_FREQUENCIES = 256
RIDGES = torch.logspace(-4, 0, 9, dtype=torch.float64)  # candidates for ρ, relative to the features' variance


def evenly(count: int, most: int = MAX_SAMPLES) -> NDArray[np.int64]:
    """Return at most `most` of `count` positions, evenly spaced.

    The samples of a domain are shuffled when they are loaded, so these are random ones. Pooled samples are those of one
    domain after the other, and even spaces give each domain its share.
    """
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


@torch.no_grad()
def density(probabilities: Tensor) -> Tensor:
    """Return the soft neighbourhood density, which is high if predictions form dense clusters.

    A softmax with temperature 0.05 over the cosine similarities between a sample's prediction and all others is its
    distribution over neighbours; the score is the mean entropy of these distributions. Of more than 2,048 samples,
    2,048 evenly spaced ones are used.
    """
    directions = normalize(probabilities[torch.from_numpy(evenly(len(probabilities))).to(probabilities.device)])
    entropies = []
    for start in range(0, len(directions), DENSITY_BLOCK):
        similarities = directions[start : start + DENSITY_BLOCK] @ directions.T / TEMPERATURE
        similarities.diagonal(start).fill_(-torch.inf)
        entropies.append(torch.special.entr(similarities.softmax(1)).sum(1))
    return torch.cat(entropies).mean()


@torch.no_grad()
def nuclear_norm(probabilities: Tensor) -> float:
    """Return the sum of the singular values of the n × k predictions, divided by √(nk), its largest possible value.

    It is 1 for confident predictions in which all classes are equally frequent.
    """
    values = in_double(probabilities)
    if not values.isfinite().all():
        return float("nan")
    squares = torch.linalg.eigvalsh(values.T @ values)
    return float(squares.clamp(min=0).sqrt().sum() / (values.numel() ** 0.5))


@torch.no_grad()
def importance_weights(training: Tensor, held_out: Tensor, target_mean: Tensor) -> Tensor:
    """Estimate the density ratio target / source at held-out samples of a source; of the target, only Σℓ is needed.

    Unconstrained least-squares importance fitting (Kanamori et al. 2009) with random features as the basis. The ratio
    w(x) = 1 + θᵀ(Σ(x) − μ), where μ is the source's mean, minimises E_source[w²]/2 − E_target[w] + ρ|θ|²/2. The
    solution is (Cov + ρI) θ = Σℓ − μ, because E_target[w] depends on the target only through Σℓ. The constant is not
    penalised: a large ρ gives equal weights. Leave-one-out cross-validation on the source chooses ρ. Negative ratios
    become 0; then all are scaled to mean 1 over the training samples, the mean of the true ratio.

    Parameters
    ----------
    training, held_out
        Random features of the source; only the first 256 frequencies are used, which bounds the cost for any N.
    target_mean
        Σℓ of the target.
    """
    training, held_out, target = (_basis(features) for features in (training, held_out, target_mean))
    count, mean = len(training), training.mean(0)
    variances, vectors = torch.linalg.eigh((training - mean).T @ (training - mean) / count)
    training, held_out, shift = ((values - mean) @ vectors for values in (training, held_out, target))
    best_risk, theta = torch.inf, torch.zeros_like(shift)
    for ridge in RIDGES.to(variances.device) * variances.sum().clamp(min=torch.finfo(variances.dtype).eps):
        inverse = 1 / (variances.clamp(min=0) + ridge)
        ratios = 1 + training @ (inverse * shift)
        rest = 1 - (1 + training.square() @ inverse) / count  # 1 − leverage
        left_out = ratios / rest * (1 - 1 / count)
        gain = (1 + shift.square() @ inverse + (ratios.square() / rest).mean() / count) * (1 - 1 / count)
        risk = float(left_out.square().mean() / 2 - gain)
        if risk < best_risk:
            best_risk, theta = risk, inverse * shift
    weights: Tensor = (1 + held_out @ theta).clamp(min=0) / (1 + training @ theta).clamp(min=0).mean()
    return weights


def _basis(features: Tensor) -> Tensor:
    """Return the cosines and sines of the first frequencies."""
    waves: Tensor = in_double(features).unflatten(-1, (2, -1))
    return waves[..., :MAX_FREQUENCIES].flatten(-2)


def weighted_accuracy(correct: Tensor, weights: Tensor) -> float:
    """Estimate the accuracy on the target: the weighted share of held-out samples of a source that are correct."""
    return float((weights * correct).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny))


def deep_embedded_validation(losses: Tensor, weights: Tensor) -> Tensor:
    """Estimate the risk on the target: the mean weighted loss; the weights, whose mean is 1, are a control variate."""
    weighted = weights * losses
    covariance = torch.cov(torch.stack([weighted, weights]))
    coefficient = -covariance[0, 1] / covariance[1, 1] if covariance[1, 1] > 0 else torch.zeros_like(covariance[0, 1])
    return weighted.mean() + coefficient * (weights.mean() - 1)
