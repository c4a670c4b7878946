"""How a GPU computes while a client runs: with TF32 or without, and whether always in the same order.

These are settings of the process. Clients that share one belong to one run, which has one configuration.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.backends import cudnn

from fedrf.config.schema import Config
from fedrf.errors import NOT_THE_SAME_BITS

NEWER_KEYS = (torch.backends.cuda.matmul, getattr(cudnn, "conv", None))  # of torch 2.9, `fp32_precision`


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
            _apply(
                config.federation.mode == "sync" or config.simulation.enabled,
                True,
                False,
                *_tf32(config.train.precision == "tf32"),
            )
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
        _read(lambda: cudnn.allow_tf32),
        _read(torch.get_float32_matmul_precision),
        [getattr(keys, "fp32_precision", None) for keys in NEWER_KEYS],
    )


def _read(older: Callable[[], Any]) -> Any:
    """Return a setting; None if the process has set it by newer keys, with which torch refuses to read older ones."""
    try:
        return older()
    except RuntimeError:
        return None


def _apply(
    is_deterministic: bool,
    only_warns: bool,
    benchmark: bool,
    convolutions: bool | None,
    products: str | None,
    newer: Sequence[str | None] = (None, None),
) -> None:
    # Only a warning: an extractor may have a layer for which there is no deterministic implementation.
    torch.use_deterministic_algorithms(is_deterministic, warn_only=only_warns)
    cudnn.benchmark = benchmark
    if convolutions is not None:
        cudnn.allow_tf32 = convolutions
    if products is not None:
        torch.set_float32_matmul_precision(products)
    for keys, value in zip(NEWER_KEYS, newer, strict=True):
        if value is not None:
            keys.fp32_precision = value  # type: ignore[union-attr]


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
            note(f"{NOT_THE_SAME_BITS}: {operation} has no deterministic implementation")

    return showwarning
