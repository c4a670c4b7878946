"""Moves what a client needs in its rounds only to a store, while it skips rounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer


class ArrayStore(Protocol):
    """Keeps arrays outside of the memory of this process."""

    def put(self, arrays: Sequence[NDArray[Any]]) -> Any:
        """Store copies of arrays and return their key."""

    def get(self, key: Any) -> Sequence[NDArray[Any]]:
        """Return the arrays of a key."""


def training_state(parameters: Iterable[Tensor], optimizers: Iterable[Optimizer]) -> list[Tensor]:
    """Return the parameters that are trained and the state of their optimisers, and drop gradients."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = None
    states = (state for optimizer in optimizers for state in optimizer.state.values())
    return trained + [value for state in states for value in state.values() if isinstance(value, Tensor)]


@contextmanager
def moved(tensors: Iterable[Tensor], store: ArrayStore) -> Iterator[None]:
    """Keep tensors in a store until the block ends, and free their memory; those that share memory stay."""
    own = [tensor for tensor in tensors if tensor.untyped_storage().nbytes() == tensor.nbytes]
    key = store.put([tensor.detach().cpu().numpy() for tensor in own])
    for tensor in own:
        tensor.data = tensor.data.new_empty(0)
    try:
        yield
    finally:
        for tensor, values in zip(own, store.get(key), strict=True):
            tensor.data = torch.from_numpy(np.array(values)).to(tensor.device)
