"""Batch normalisation of aligned features with separate statistics for each client."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from fedrf.tca.precision import in_double

RELATIVE_EPSILON = 1e-5  # of the mean variance, added to each variance


def moments(rows: Tensor) -> Tensor:
    """Return mean and variance of each column, 2 × m."""
    return torch.stack([rows.mean(0), rows.var(0, unbiased=False)])


def mixed_moments(domain_moments: Tensor, shares: Tensor) -> Tensor:
    """Return mean and variance, 2 × m, of a mixture of k domains.

    Parameters
    ----------
    domain_moments
        Mean and variance of each domain, k × 2 × m.
    shares
        Weights of the domains in the mixture, k × 1 or k.
    """
    shares = shares.reshape(-1, 1)
    means, variances = domain_moments.unbind(1)
    mean = (shares * means).sum(0)
    # Not E[x²] − E[x]², which loses digits if means are far from zero.
    return torch.stack([mean, (shares * (variances + (means - mean).square())).sum(0)])


class DomainNormalization(nn.Module):
    """Standardises rows by batch statistics in training and by population statistics in prediction.

    Attributes
    ----------
    use_population
        Whether to use the population statistics instead of those of the batch.
    share
        Returns the weight of the domain's own statistics, which are then mixed with `others`. None: no mixing.
    others
        Latest statistics received from the other domains, 2 × m.
    """

    # Buffers keep these names because weight files contain them.
    settled: Tensor  # population statistics, 2 × m
    others: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("settled", torch.stack([torch.zeros(dim), torch.ones(dim)]))
        self.register_buffer("others", torch.zeros(2, dim))
        self.share: Callable[[], Tensor] | None = None
        self.use_population = False

    def forward(self, rows: Tensor) -> Tensor:
        """Standardise the columns."""
        mean, variance = self.settled if self.use_population else moments(rows)
        if self.share is not None and self.others[1].any():
            share = self.share()
            both = torch.stack([torch.stack([mean, variance]), self.others])
            mean, variance = mixed_moments(both, torch.stack([share, 1 - share]))
        # Relative to the variances, because the scale of the rows depends on W_RF.
        epsilon = RELATIVE_EPSILON * variance.mean()
        standardised: Tensor = (rows - mean) / (variance + epsilon + torch.finfo(rows.dtype).tiny).sqrt()
        return standardised

    @torch.no_grad()
    def fit_population(self, pieces: Iterable[Tensor]) -> None:
        """Compute the population statistics from all samples, which are given in pieces."""
        count, total, squares = 0, torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for piece in pieces:
            rows = in_double(piece)
            count, total, squares = count + len(rows), total + rows.sum(0), squares + rows.square().sum(0)
        mean = total / count
        self.settled.copy_(torch.stack([mean, (squares / count - mean.square()).clamp(min=0)]))
