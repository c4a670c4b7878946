"""`train.precision`: the precision of the extractor, and losses that are scaled for gradients in half precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor

from fedrf.config.schema import Config

AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class ScaledLosses(MixedPrecision):
    """Scales losses for gradients in half precision; where that is used, the network decides itself.

    The scale changes once for each loss, after all optimisers have taken their step against it.
    """

    scaler: torch.amp.GradScaler
    _has_stepped = False

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Leave everything in single precision."""
        yield

    def pre_backward(self, tensor: Tensor, module: LightningModule) -> Tensor:  # type: ignore[override]
        """Scale a loss."""
        self._update()
        return super().pre_backward(tensor, module)

    def optimizer_step(  # type: ignore[override]
        self, optimizer: Any, model: LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Take a step, unless a gradient is not finite."""
        closure()
        self._after_closure(model, optimizer)
        self._has_stepped = True
        return self.scaler.step(optimizer, **kwargs)

    def _update(self) -> None:
        """Change the scale after the steps against the last loss."""
        if self._has_stepped:
            self.scaler.update()
        self._has_stepped = False

    def state_dict(self) -> dict[str, Any]:
        """Return the scale."""
        self._update()
        return super().state_dict()


def check_precision(config: Config, device: torch.device) -> None:
    """Raise a `ValueError` if a device cannot compute with `train.precision`."""
    if config.train.precision == "16-mixed" and device.type == "cpu":
        raise ValueError("train.precision=16-mixed needs an accelerator; allowed on a CPU: 32, tf32, bf16-mixed")


def precision_plugins(config: Config, device: torch.device) -> list[MixedPrecision]:
    """Return what a trainer needs for `train.precision`."""
    return [ScaledLosses("16-mixed", device.type)] if config.train.precision == "16-mixed" else []
