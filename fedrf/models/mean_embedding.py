"""The mean embedding Σℓ of a client: over the batch, as a running mean, or over the whole local data set.

Each of them is differentiable in the current batch, so that L_MMD has a gradient for the extractor. Clients send a
detached copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fedrf.tca.mmd import mean_embedding
from fedrf.tca.precision import where_float64


class OwnEmbedding(nn.Module):
    """Computes Σℓ in each round; its state between rounds is in buffers, so that checkpoints contain it.

    Parameters
    ----------
    size
        Number of random features, 2N.
    message
        ``batch``: mean over the batch. ``running``: exponential moving average over the batches, bias-corrected.
        ``exact``: mean over all samples, computed once, and again every `refresh` rounds if the extractor learns.
    memory
        Weight of the past in the running mean.
    extractor_learns
        Whether each step of the client changes the extractor.
    """

    # Buffers keep these names because weight files contain them.
    mean: Tensor
    rounds: Tensor

    def __init__(
        self, size: int, message: str, memory: float = 0.9, refresh: int = 5, extractor_learns: bool = True
    ) -> None:
        super().__init__()
        self.message, self.memory, self.refresh = message, memory, refresh
        self.extractor_learns = extractor_learns
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("rounds", torch.zeros((), dtype=torch.int64))
        self._number: int | None = 0  # the value of `rounds`, which is on the device; None: not known

    def forward(self, features: Tensor, whole_set: Iterable[Tensor]) -> Tensor:
        """Return Σℓ for this round.

        Parameters
        ----------
        features
            Random features of the batch.
        whole_set
            Random features of all samples, in pieces; read only when the exact mean is recomputed.
        """
        batch = mean_embedding(features)
        if self.message == "batch":
            return batch
        number = int(self.rounds) if self._number is None else self._number
        self.rounds += 1
        self._number = number + 1
        if self.message == "running":
            blend = self.memory * self.mean + (1 - self.memory) * batch
            self.mean.copy_(blend.detach())
            # Bias correction: the first running mean is the mean of the first batch.
            return blend / (1 - self.memory ** (number + 1))
        if number == 0 or (self.extractor_learns and number % self.refresh == 0):
            self.mean.copy_(_mean(whole_set))
        # The value is that of the whole set, the gradient that of the batch.
        return self.mean + (batch - batch.detach())

    def renew(self) -> None:
        """Recompute the exact mean in the next round: the extractor was replaced."""
        if self.message == "exact":
            self.rounds.zero_()
            self._number = 0

    def reset(self) -> None:
        """Forget the rounds before."""
        self.mean.zero_()
        self.rounds.zero_()
        self._number = 0

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._number = None


@torch.no_grad()
def _mean(pieces: Iterable[Tensor]) -> Tensor:
    total, count = torch.zeros((), dtype=torch.float64), 0
    for piece in pieces:
        rows = where_float64(piece)
        total = total.to(rows.device) + rows.sum(0, dtype=torch.float64)
        count += len(rows)
    return total / count
