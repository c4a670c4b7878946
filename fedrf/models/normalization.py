"""Batch normalisation of aligned features in which every client has its own statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

FLOOR = 1e-5  # under the variances of random features, which are means of bounded numbers


def moments(rows: Tensor) -> Tensor:
    """Mean and variance of each column, 2 × m."""
    return torch.stack([rows.mean(0), rows.var(0, unbiased=False)])


def mixed_moments(moments_of: Tensor, shares: Tensor) -> Tensor:
    """Mean and variance, 2 × m, of a mixture of domains: of their moments, k × 2 × m, and their shares, k × 1 or k."""
    shares = shares.reshape(-1, 1)
    means, variances = moments_of.unbind(1)
    mean = (shares * means).sum(0)
    # Not E[x²] − E[x]², which loses digits where means are far from zero.
    return torch.stack([mean, (shares * (variances + (means - mean).square())).sum(0)])


class DomainNormalization(nn.Module):
    """Standardises rows: by the batch while the client trains, by all its samples when it predicts.

    Attributes
    ----------
    share
        Tells how much of a domain's own statistics there is in those that are used, the rest being `others`; None: all.
    others
        Statistics of the other domains that came last, 2 × m.
    """

    settled: Tensor
    others: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("settled", torch.stack([torch.zeros(dim), torch.ones(dim)]))
        self.register_buffer("others", torch.zeros(2, dim))
        self.share: Callable[[], Tensor] | None = None
        self.is_settled = False

    def forward(self, rows: Tensor) -> Tensor:
        """Standardise."""
        mean, variance = self.settled if self.is_settled else moments(rows)
        if self.share is not None and self.others[1].any():
            share = self.share()
            both = torch.stack([torch.stack([mean, variance]), self.others])
            mean, variance = mixed_moments(both, torch.stack([share, 1 - share]))
        # The floor is relative: W, and with it the size of what it maps to, is the federation's to choose.
        standard: Tensor = (rows - mean) / (variance + FLOOR * variance.mean() + torch.finfo(rows.dtype).tiny).sqrt()
        return standard

    @torch.no_grad()
    def settle(self, pieces: Iterable[Tensor]) -> None:
        """Take the statistics of all samples."""
        count, total, squares = 0, torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for rows in pieces:
            wide = rows.double()
            count, total, squares = count + len(rows), total + wide.sum(0).cpu(), squares + wide.square().sum(0).cpu()
        mean = total / count
        self.settled.copy_(torch.stack([mean, (squares / count - mean.square()).clamp(min=0)]))
