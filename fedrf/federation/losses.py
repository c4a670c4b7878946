"""The terms of a method's loss: checked, and as numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrf.methods.base import Losses
from fedrf.protocol.schedule import Schedule


def check_losses(terms: object, method: str, schedule: Schedule) -> None:
    """Raise a `ValueError` unless terms are named scalars, with a `loss` that can be minimised where one is needed."""
    name = f"method={method}: {'target' if schedule.is_target else 'source'}_loss"
    values = list(terms.values()) if isinstance(terms, dict) else [None]
    if not isinstance(terms, dict) or not all(isinstance(value, Tensor) and value.numel() == 1 for value in values):
        raise ValueError(f"{name} must return a dictionary of scalar tensors; got {terms!r:.200}")
    if "loss" not in terms and not schedule.is_target:
        raise ValueError(f"{name} returned {', '.join(terms) or 'nothing'}; a source needs the term loss")
    if "loss" in terms and not schedule.trained:
        raise ValueError(f"{name} returns a loss, but target_trains names no part that the target trains")
    if "loss" in terms and not terms["loss"].requires_grad:
        raise ValueError(f"{name} returns a loss without a gradient")


def as_numbers(terms: Losses) -> dict[str, float]:
    """Return terms as numbers, which the host waits for once."""
    if not terms:
        return {}
    values = torch.stack([term.detach().reshape(()) for term in terms.values()]).cpu().tolist()
    return dict(zip(terms, values, strict=True))
