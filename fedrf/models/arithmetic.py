"""How a GPU computes while a client runs: with TF32 or without, and whether always in the same order.

These are settings of the process. Clients that share one belong to one run, which has one configuration.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.backends import cudnn

from fedrf.config.schema import Config

AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class _Users:
    """How many clients of this process compute on a GPU, and the settings from before the first."""

    lock = threading.Lock()
    count = 0
    before: tuple[Any, ...] = ()


@contextmanager
def arithmetic(config: Config, device: torch.device, note: Callable[[str], None]) -> Iterator[None]:
    """Apply `train.precision` and `federation.mode` to a GPU for the time of a block; elsewhere they change nothing.

    Parameters
    ----------
    note
        Called once for each operation that has no deterministic implementation.
    """
    if device.type != "cuda":
        yield
        return
    with _Users.lock:
        if not _Users.count:
            _Users.before = (*_settings(), warnings.showwarning)
            _apply(config.federation.mode == "sync", True, False, *_tf32(config.train.precision == "tf32"))
            warnings.showwarning = _noting(warnings.showwarning, note)
        _Users.count += 1
    try:
        yield
    finally:
        with _Users.lock:
            _Users.count -= 1
            if not _Users.count:
                *settings, warnings.showwarning = _Users.before
                _apply(*settings)


def _tf32(is_used: bool) -> tuple[bool, str]:
    """Return the settings of convolutions and of matrix products."""
    return is_used, "high" if is_used else "highest"


def _settings() -> tuple[Any, ...]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn.benchmark,
        cudnn.allow_tf32,
        torch.get_float32_matmul_precision(),
    )


def _apply(is_deterministic: bool, only_warns: bool, benchmark: bool, convolutions: bool, products: str) -> None:
    # Only a warning: an extractor may have a layer for which there is no deterministic implementation.
    torch.use_deterministic_algorithms(is_deterministic, warn_only=only_warns)
    cudnn.benchmark, cudnn.allow_tf32 = benchmark, convolutions
    torch.set_float32_matmul_precision(products)


def _noting(show: Callable[..., None], note: Callable[[str], None]) -> Callable[..., None]:
    """Return what shows warnings, and turns those about determinism into notes."""
    warnings.filterwarnings("always", message=".*deterministic implementation")
    noted = set()

    def showwarning(message: Warning | str, *rest: Any, **more: Any) -> None:
        operation, found, _ = str(message).partition(" does not have a deterministic implementation")
        if not found:
            show(message, *rest, **more)
        elif operation not in noted:
            noted.add(operation)
            note(f"not the same bits on a GPU: {operation} has no deterministic implementation")

    return showwarning


class ScaledLosses(MixedPrecision):
    """Scales losses for gradients in half precision; where that is used, the network decides itself."""

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Leave everything in single precision."""
        yield


def precision_plugins(config: Config, device: torch.device) -> list[MixedPrecision]:
    """Return what a trainer needs for `train.precision`; raise a `ValueError` if the device cannot do it."""
    if config.train.precision != "16-mixed":
        return []
    if device.type == "cpu":
        raise ValueError("train.precision=16-mixed needs an accelerator; allowed on a CPU: 32, tf32, bf16-mixed")
    return [ScaledLosses("16-mixed", device.type)]
