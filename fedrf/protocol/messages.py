"""What crosses between clients and coordinator, byte for byte.

A message is a sender, a round, an attempt (how often the sender has been started) and numbers: float32 arrays or plain
floats, never code, never samples. `Contract.check` is what the coordinator holds against every message that arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrf.config.schema import HIDDEN, Config
from fedrf.data.registry import num_classes

Array = NDArray[np.float32]
NORM_SLACK = 1e-4  # of single precision, over thousands of squares
KEY_BYTES = 256  # of Paillier: 2048 bits
CIPHERTEXT_BYTES = 2 * KEY_BYTES  # a number modulo the square of the key


@dataclass(frozen=True, eq=False)
class Message:
    """Numbers from one client, of one round."""

    kind: ClassVar[str]
    sender: str
    round: int
    attempt: int
    values: Array

    @property
    def nbytes(self) -> int:
        """Size of the numbers in bytes; what Ray adds to carry them is not counted."""
        return int(self.values.nbytes)


class MeanEmbedding(Message):
    """Σℓ: the mean of a client's random features, 2N numbers. The only kind that is passed on as it is."""

    kind = "mean_embedding"


class Features(Message):
    """Aligned features of the samples in a batch, a row of m numbers each: what methods send that compare samples."""

    kind = "features"


class Ciphertexts(Features):
    """The same under Paillier encryption: counted as such, and carried as they are, since no number would differ."""

    kind = "ciphertexts"

    @property
    def nbytes(self) -> int:
        """Size of so many ciphertexts in bytes."""
        return int(self.values.size) * CIPHERTEXT_BYTES

    @property
    def answered_by(self) -> dict[str, int]:
        """The receiver's mean, still encrypted, for the sender, and what the sender makes of it, back, in bytes."""
        width = self.values.shape[1]
        return {"ciphertexts": width * CIPHERTEXT_BYTES, "decrypted": width * self.values.itemsize}


class Moments(Message):
    """Mean and variance of each aligned feature over a batch, 2 × m numbers."""

    kind = "moments"


class Aligner(Message):
    """W_RF: 2N × m numbers."""

    kind = "aligner"


class Classifier(Message):
    """C: all its parameters, one after the other."""

    kind = "classifier"


class Extractor(Message):
    """The learnable part of G: all its parameters, one after the other."""

    kind = "extractor"


class Companion(Message):
    """What a method adds to the network: all parameters, one after the other."""

    kind = "companion"


class Weights(Message):
    """What the target thinks of each client's parts: a number for each source, and the last for itself."""

    kind = "weights"


@dataclass(frozen=True, eq=False)
class _Counted(Message):
    """Numbers that are a sum over n samples, and n."""

    count: int

    @property
    def nbytes(self) -> int:
        """Size of the numbers in bytes."""
        return super().nbytes + 8


class Statistics(_Counted):
    """For the warm start in one message: n, and below Σ1 the matrix ΣΣᵀ ((1 + 2N) × 2N)."""

    kind = "statistics"


class Product(_Counted):
    """For the warm start by subspace iteration: n with Σ1 (2N) at first, then ΣΣᵀQ, of the shape of the basis Q."""

    kind = "product"


@dataclass(frozen=True)
class Greeting:
    """What a client tells once, before round 1: a kernel width that suits its data, sizes of its network, and n.

    n is 1 unless the aggregation weighs by it.
    """

    kind: ClassVar[str] = "greeting"
    sender: str
    round: int
    attempt: int
    width: float
    extractor: int
    count: int
    features: int = 0
    companion: int = 0

    @property
    def nbytes(self) -> int:
        """Size of the numbers in bytes."""
        return 40


@dataclass(frozen=True)
class Metrics:
    """Named figures for the display and the records: losses, scores, seconds."""

    kind: ClassVar[str] = "metrics"
    sender: str
    round: int
    attempt: int
    values: Mapping[str, float]

    @property
    def nbytes(self) -> int:
        """Size of the numbers in bytes."""
        return 8 * len(self.values)


AnyMessage = Message | Greeting | Metrics
KINDS: dict[str, type[AnyMessage]] = {
    one.kind: one
    for one in (
        MeanEmbedding,
        Features,
        Ciphertexts,
        Moments,
        Aligner,
        Classifier,
        Extractor,
        Companion,
        Weights,
        Statistics,
        Product,
        Greeting,
        Metrics,
    )
}
# What goes on to the peers as it is; everything else stays with the coordinator, or is averaged.
RELAYED = ("mean_embedding", "features", "ciphertexts", "moments")


@dataclass(frozen=True)
class Envelope:
    """One call of a client: what it sends in one phase of one round."""

    sender: str
    round: int
    attempt: int
    phase: str
    messages: tuple[AnyMessage, ...] = ()
    model_version: int = 0


@dataclass(frozen=True, eq=False)
class Reply:
    """What comes back: peers' Σℓ, aggregates for the parts to load, parts of single sources, and what to do next."""

    embeddings: tuple[Message, ...] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)
    ballots: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    model_version: int = 0
    generation: int = 0
    round: int = 0
    stop: bool = False
    refused: tuple[str, ...] = ()


def known_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of each kind of message that follows from the configuration; of samples, the most rows."""
    size, dim, classes = 2 * config.model.num_features, config.model.dim, num_classes(config.data)
    widths = (dim, classes) if config.model.classifier == "linear" else (dim, HIDDEN, HIDDEN, classes)
    classifier = sum((before + 1) * after for before, after in pairwise(widths))
    return {
        "mean_embedding": (size,),
        "aligner": (size, dim),
        "classifier": (classifier,),
        "statistics": (size + 1, size),
        "features": (config.train.batch_size, dim),
        "ciphertexts": (config.train.batch_size, dim),
        "moments": (2, dim),
    }


class BadMessageError(ValueError):
    """A message that must not be used; the text says why."""


@dataclass(frozen=True)
class Contract:
    """Who may send, and what shape each kind has."""

    clients: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]

    def check(self, message: object, sender: str, round_number: int) -> None:
        """Raise `BadMessageError` unless `message` is a known kind, from `sender`, for this round, and sound."""
        kind = getattr(type(message), "kind", None)
        if KINDS.get(str(kind)) is not type(message):
            raise BadMessageError(f"{type(message).__name__} is no message; allowed: {', '.join(KINDS)}")
        known: AnyMessage = message
        if known.sender not in self.clients:
            raise BadMessageError(f"unknown sender {known.sender!r}; known: {', '.join(self.clients)}")
        if known.sender != sender:
            raise BadMessageError(f"{kind} of {known.sender} in the envelope of {sender}")
        if known.round != round_number:
            raise BadMessageError(f"{kind} of {sender} is of round {known.round}; expected {round_number}")
        numbers = known.values.values() if isinstance(known, Metrics) else _plain_numbers(known)
        if not all(type(number) in (int, float) for number in numbers):
            raise BadMessageError(f"{kind} of {sender} holds something that is no number")
        count = getattr(known, "count", 1)
        if count < 1:
            raise BadMessageError(f"{kind} of {sender}: count must be at least 1; got {count}")
        if isinstance(known, Greeting) and not (known.width > 0 and isfinite(known.width)):
            raise BadMessageError(f"greeting of {sender}: width must be positive and finite; got {known.width}")
        if isinstance(known, Message):
            self._check_values(known)

    def _check_values(self, message: Message) -> None:
        where, values = f"{message.kind} of {message.sender}", message.values
        if not isinstance(values, np.ndarray) or values.dtype != np.float32:
            raise BadMessageError(f"{where} must be a float32 array; got {getattr(values, 'dtype', type(values))}")
        expected = self.shapes.get(message.kind)
        fits = expected is None or values.shape == expected
        if isinstance(message, Features) and expected is not None:
            fits = values.ndim == 2 and values.shape[1] == expected[1] and 1 <= len(values) <= expected[0]
        if not fits:
            raise BadMessageError(f"{where} must have shape {expected}; got {values.shape}")
        # The sum of squares is finite if every number is, and a tenth of the price of looking at each.
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(values.ravel()))
        if not isfinite(length) and not np.isfinite(values).all():
            raise BadMessageError(f"{where} has numbers that are not finite")
        if isinstance(message, MeanEmbedding) and length > 1 + NORM_SLACK:
            raise BadMessageError(f"{where} has length {length:.4g}; a mean of unit vectors has at most 1")
        if isinstance(message, Features) and (longest := float(np.linalg.norm(values, axis=1).max())) > 1 + NORM_SLACK:
            raise BadMessageError(f"{where} has a row of length {longest:.4g}; aligned features have at most 1")
        if isinstance(message, Weights) and not (values.min() >= 0 and values.sum() > 0):
            raise BadMessageError(f"{where} must be at least 0, and not all of them 0")


def _plain_numbers(message: AnyMessage) -> list[Any]:
    return [
        getattr(message, name)
        for name in ("round", "attempt", "count", "width", "extractor", "features", "companion")
        if hasattr(message, name)
    ]
