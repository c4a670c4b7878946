"""A client's own Σℓ, as a mean over the batch, over the past, or over the whole local set.

Whatever it averages over, it is differentiable in the batch at hand, so that L_MMD reaches the extractor; what is sent
is a detached copy.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from fedrf.tca.mmd import mean_embedding


class OwnEmbedding(nn.Module):
    """Keeps what has to be remembered between rounds, in buffers, so that checkpoints have it.

    Parameters
    ----------
    size
        2N.
    message
        ``batch``; ``running``, bias-corrected; or ``exact``, recomputed every `refresh` rounds where the extractor
        moves, and once where it does not.
    memory
        Share of the past in a running mean.

    Attributes
    ----------
    outdated
        Set it when the extractor was replaced: the next exact mean is a new one.
    """

    mean: Tensor
    rounds: Tensor

    def __init__(self, size: int, message: str, memory: float = 0.9, refresh: int = 5, moves: bool = True) -> None:
        super().__init__()
        self.message, self.memory, self.refresh, self.moves = message, memory, refresh, moves
        self.outdated = False
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("rounds", torch.zeros((), dtype=torch.int64))

    def forward(self, features: Tensor, whole_set: Iterable[Tensor]) -> Tensor:
        """Return Σℓ for this round from the batch's random features; `whole_set` yields those of all samples."""
        batch = mean_embedding(features)
        if self.message == "batch":
            return batch
        number = int(self.rounds)
        self.rounds += 1
        if self.message == "running":
            blend = self.memory * self.mean + (1 - self.memory) * batch
            self.mean.copy_(blend.detach())
            # Divided by the weights that were given out so far: the first mean is the first batch's.
            return blend / (1 - self.memory ** (number + 1))
        if number == 0 or self.outdated or (self.moves and number % self.refresh == 0):
            self.mean.copy_(_mean(whole_set))
            self.outdated = False
        # The value of the whole set, the gradient of the batch.
        return self.mean + (batch - batch.detach())


@torch.no_grad()
def _mean(pieces: Iterable[Tensor]) -> Tensor:
    total, count = torch.zeros((), dtype=torch.float64), 0
    for piece in pieces:
        total = total.to(piece.device) + piece.sum(0, dtype=torch.float64)
        count += len(piece)
    return total / count
