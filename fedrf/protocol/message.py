"""What all messages have in common, and how they are checked.

A message is a sender, a round, an attempt (how often the sender has been started) and numbers: arrays or plain floats,
no code and no samples. `fedrf.protocol.messages` has the kinds of messages, `fedrf.protocol.wire` the bytes that are
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrf.protocol.sizes import Sizes

Array = NDArray[np.float32]

KINDS: dict[str, type[Message]] = {}


class BadMessageError(ValueError):
    """A message that must not be used; the text says why."""


@dataclass(frozen=True, eq=False)
class Message:
    """Base class of all messages of one client in one round.

    Attributes
    ----------
    kind
        Name in the ledger. Subclasses with a `kind` are known to `check_message`.
    is_relayed
        Whether it is passed on to the peers unchanged.
    is_part
        Whether it carries a part of the model, which is averaged.
    """

    kind: ClassVar[str]
    is_relayed: ClassVar[bool] = False
    is_part: ClassVar[bool] = False
    sender: str
    round: int
    attempt: int

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    @property
    def nbytes(self) -> int:
        """Size of the numbers in bytes, without sender, round and attempt, and without what Ray adds to carry them."""
        return 8 * len(self.numbers()) - 16

    @property
    def relay_bytes(self) -> dict[str, int]:
        """Bytes of answers, by kind, that relaying causes in both directions."""
        return {}

    def numbers(self) -> list[Any]:
        """Return what must be plain numbers."""
        return [getattr(self, item.name) for item in fields(self) if item.name not in ("sender", "values")]

    def check(self, sizes: Sizes) -> None:
        """Raise `BadMessageError` if shape or bounds are wrong."""

    def deliver(self, accepted: dict[str, ArrayMessage], record: Callable[[Mapping[str, float]], None]) -> None:
        """Add the message to those that the coordinator uses in a round, or record its figures."""


@dataclass(frozen=True, eq=False)
class ArrayMessage(Message):
    """An array of numbers.

    Attributes
    ----------
    may_repeat
        For messages that are relayed: whether one may be the same as in the round before, and is then not sent again.
    needs_aligner
        For messages that are relayed: whether W is used to compute them, so that averages are loaded before.
    setup_bytes
        For messages that are relayed: bytes that each source sends to the target once, before round 1, by kind.
    """

    may_repeat: ClassVar[bool] = False
    needs_aligner: ClassVar[bool] = False
    setup_bytes: ClassVar[Mapping[str, int]] = {}
    values: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return int(self.values.nbytes)

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return the shape of the array; None as long as it is not known, or if none is expected in this run."""
        return None

    @classmethod
    def dtype_of(cls, sizes: Sizes) -> str:
        """Return the type of the numbers."""
        return "float32"

    def has_shape(self, expected: tuple[int, ...]) -> bool:
        """Tell whether the array has the shape."""
        return self.values.shape == expected

    def check(self, sizes: Sizes) -> None:
        """Check type, shape, that numbers are finite, and bounds."""
        where, values, expected = f"{self.kind} of {self.sender}", self.values, self.shape(sizes)
        dtype = self.dtype_of(sizes)
        if not isinstance(values, np.ndarray) or values.dtype != dtype:
            raise BadMessageError(f"{where} must be a {dtype} array; got {getattr(values, 'dtype', type(values))}")
        if expected is None:
            raise BadMessageError(f"{where} is not expected in this run, or not yet")
        if not self.has_shape(expected):
            raise BadMessageError(f"{where} must have shape {expected}; got {values.shape}")
        # A finite sum of squares implies that every number is finite, and is ten times cheaper to compute.
        with np.errstate(over="ignore"):
            norm = float(np.linalg.norm(values.ravel().astype(np.float32, copy=False)))
        if not isfinite(norm) and not np.isfinite(values).all():
            raise BadMessageError(f"{where} has numbers that are not finite")
        self.check_bounds(where, norm)

    def check_bounds(self, where: str, norm: float) -> None:
        """Raise `BadMessageError` if numbers are out of bounds."""

    def deliver(self, accepted: dict[str, ArrayMessage], record: Callable[[Mapping[str, float]], None]) -> None:
        """Add the message to those that the coordinator uses."""
        accepted[self.kind] = self


def check_message(message: object, sender: str, number: int, clients: Iterable[str], sizes: Sizes) -> Message:
    """Return a message of a known kind, from `sender`, for round `number`, that is sound; raise otherwise."""
    kind = getattr(type(message), "kind", None)
    if not isinstance(message, Message) or KINDS.get(str(kind)) is not type(message):
        raise BadMessageError(f"{type(message).__name__} is not a message; allowed: {', '.join(KINDS)}")
    if message.sender not in clients:
        raise BadMessageError(f"unknown sender {message.sender!r}; known: {', '.join(clients)}")
    if message.sender != sender:
        raise BadMessageError(f"{kind} of {message.sender} in the envelope of {sender}")
    if message.round != number:
        raise BadMessageError(f"{kind} of {sender} is of round {message.round}; expected {number}")
    if not all(type(value) in (int, float) for value in message.numbers()):
        raise BadMessageError(f"{kind} of {sender} holds something that is not a number")
    message.check(sizes)
    return message
