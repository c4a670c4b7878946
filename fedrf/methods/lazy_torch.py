"""PyTorch, imported when it is first used.

The command line and the driver read what a method says of itself, and start seconds sooner without PyTorch. Files of
methods therefore take `torch`, `nn` and `functional` from here, and use them only inside of functions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn import functional
else:

    class _LazyModule:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    torch, nn, functional = _LazyModule("torch"), _LazyModule("torch.nn"), _LazyModule("torch.nn.functional")

__all__ = ["functional", "nn", "torch"]
