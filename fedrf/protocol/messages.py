"""The kinds of messages that cross between clients and coordinator, byte for byte.

Each class knows the shape and the bounds of its numbers and whether it is relayed. A new kind of message is one more
class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from fedrf.protocol.message import KINDS, ArrayMessage, BadMessageError, Message
from fedrf.protocol.sizes import Sizes

NORM_SLACK = 1e-4  # rounding errors of single precision, over thousands of squares
MAX_COUNT = 10**12  # of samples
MAX_MOMENT = 1e6
MAX_FIGURES, MAX_FIGURE_NAME = 100, 64
COUNTING_FIGURES = ("round", "step", "final")  # are integers
KEY_BYTES = 256  # of Paillier: 2048 bits
CIPHERTEXT_BYTES = 2 * KEY_BYTES  # a number modulo the square of the key


class MeanEmbedding(ArrayMessage):
    """Σℓ: the mean of a client's random features, 2N numbers."""

    kind = "mean_embedding"
    is_relayed = True
    may_repeat = True

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return (2N,)."""
        return None if sizes.features is None else (sizes.features,)

    def check_bounds(self, where: str, norm: float) -> None:
        """Check that the norm is at most 1, as for every mean of unit vectors."""
        if norm > 1 + NORM_SLACK:
            raise BadMessageError(f"{where} has length {norm:.4g}; a mean of unit vectors has at most 1")


class Features(ArrayMessage):
    """Aligned features of the samples in a batch, a row of m numbers each, for methods that compare samples."""

    kind = "features"
    is_relayed = True
    needs_aligner = True

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return (batch size, m); a batch may be smaller."""
        return (sizes.batch_size, sizes.dim)

    def has_shape(self, expected: tuple[int, ...]) -> bool:
        """Tell whether there are at most as many rows, and rows of that length."""
        shape = self.values.shape
        return len(shape) == 2 and shape[1] == expected[1] and 1 <= shape[0] <= expected[0]

    def check_bounds(self, where: str, norm: float) -> None:
        """Check that rows have at most unit norm."""
        if (longest := float(np.linalg.norm(self.values, axis=1).max())) > 1 + NORM_SLACK:
            raise BadMessageError(f"{where} has a row of length {longest:.4g}; aligned features have at most 1")


class Ciphertexts(Features):
    """Features that count as Paillier ciphertexts; the numbers themselves are sent, so results are the same."""

    kind = "ciphertexts"
    setup_bytes: ClassVar[Mapping[str, int]] = {"keys": KEY_BYTES}  # the public key

    @property
    def nbytes(self) -> int:
        """Size of so many ciphertexts in bytes."""
        return int(self.values.size) * CIPHERTEXT_BYTES

    @property
    def relay_bytes(self) -> dict[str, int]:
        """The receiver's encrypted mean, for the sender, and the decrypted mean back."""
        width = self.values.shape[1]
        return {"ciphertexts": width * CIPHERTEXT_BYTES, "decrypted": width * self.values.itemsize}


class Moments(ArrayMessage):
    """Mean and variance of each aligned feature over a batch, 2 × m numbers."""

    kind = "moments"
    is_relayed = True
    needs_aligner = True

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return (2, m)."""
        return (2, sizes.dim)

    def check_bounds(self, where: str, norm: float) -> None:
        """Check that variances are not negative, and that numbers are not far beyond those of any trained W."""
        if self.values[1].min() < 0 or norm > MAX_MOMENT:
            raise BadMessageError(f"{where} cannot be means and variances of aligned features")


class Aligner(ArrayMessage):
    """W_RF: 2N × m numbers."""

    kind = "aligner"
    is_part = True

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return (2N, m)."""
        return None if sizes.features is None else (sizes.features, sizes.dim)


class Classifier(ArrayMessage):
    """C: all its parameters as one vector."""

    kind = "classifier"
    is_part = True

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return the number of parameters."""
        return (sizes.classifier,)


class Extractor(ArrayMessage):
    """The learnable part of G: all its parameters as one vector."""

    kind = "extractor"
    is_part = True

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return the number of parameters."""
        return None if sizes.extractor is None else (sizes.extractor,)


class Auxiliary(ArrayMessage):
    """The auxiliary network of a method: all its parameters as one vector."""

    kind = "auxiliary"
    is_part = True

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return the number of parameters."""
        return None if sizes.auxiliary is None else (sizes.auxiliary,)


PARTS = tuple(kind for kind, message in KINDS.items() if message.is_part)


class SourceWeights(ArrayMessage):
    """How much each client's parts count, chosen by the target: one number for each source, the last for itself."""

    kind = "weights"

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return the number of clients."""
        return (sizes.clients,)

    def check_bounds(self, where: str, norm: float) -> None:
        """Check that weights are not negative, and that one is positive."""
        if not (self.values.min() >= 0 and self.values.sum() > 0):
            raise BadMessageError(f"{where} must be at least 0, and not all of them 0")


@dataclass(frozen=True, eq=False)
class _SumMessage(ArrayMessage):
    """A sum over n samples, and n."""

    count: int

    @property
    def nbytes(self) -> int:
        """Size of the array and of n in bytes."""
        return super().nbytes + 8

    def check_bounds(self, where: str, norm: float) -> None:
        """Check n, and that each column can be a sum over n unit vectors, or over their products with a unit vector."""
        check_count(self, self.count)
        columns = self.values.astype(np.float64).reshape(len(self.values), -1)
        longest, limit = float(np.linalg.norm(columns, axis=0).max(initial=0)), self.longest_column()
        if longest > limit * (1 + NORM_SLACK):
            raise BadMessageError(f"{where} has a column of length {longest:.4g}; allowed: {limit:.4g}")

    def longest_column(self) -> float:
        """Return the largest length of a column: n, because each sample adds a vector of at most unit norm."""
        return float(self.count)


class Statistics(_SumMessage):
    """For the warm start in one message: n, and a matrix with Σ1 in the first row and ΣΣᵀ below, (1 + 2N) × 2N."""

    kind = "statistics"

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return (1 + 2N, 2N)."""
        return (sizes.features + 1, sizes.features) if sizes.features and sizes.sends_gram else None

    def longest_column(self) -> float:
        """Return the largest length of a column, which has a number of Σ1 besides."""
        return 2**0.5 * self.count


class Product(_SumMessage):
    """For the warm start by subspace iteration: n with Σ1 (2N) at first, then ΣΣᵀQ, of the shape of the basis Q."""

    kind = "product"

    @classmethod
    def shape(cls, sizes: Sizes) -> tuple[int, ...] | None:
        """Return the largest shape, (2N, 2m)."""
        return None if sizes.features is None else (sizes.features, 2 * sizes.dim)

    def has_shape(self, expected: tuple[int, ...]) -> bool:
        """Tell whether there are 2N rows, and at most as many columns."""
        shape = self.values.shape
        return shape[:1] == expected[:1] and (len(shape) == 1 or (len(shape) == 2 and shape[1] <= expected[1]))


@dataclass(frozen=True, eq=False)
class Greeting(Message):
    """What a client sends once, before round 1.

    Attributes
    ----------
    width
        A kernel width for its data.
    extractor, features, auxiliary
        Sizes of its network.
    count
        n, if the aggregation weighs clients by it; otherwise 1.
    """

    kind = "greeting"
    width: float
    extractor: int
    count: int
    features: int = 0
    auxiliary: int = 0

    def check(self, sizes: Sizes) -> None:
        """Check that width and count are positive."""
        check_count(self, self.count)
        if not (self.width > 0 and isfinite(self.width)):
            raise BadMessageError(f"greeting of {self.sender}: width must be positive and finite; got {self.width}")


@dataclass(frozen=True, eq=False)
class Metrics(Message):
    """Named figures for the display and the records: losses, scores, seconds."""

    kind = "metrics"
    values: Mapping[str, float]

    @property
    def nbytes(self) -> int:
        """Size of the numbers in bytes."""
        return 8 * len(self.values)

    def numbers(self) -> list[Any]:
        """Return what must be plain numbers."""
        return list(self.values.values())

    def check(self, sizes: Sizes) -> None:
        """Check the number of figures and their names, and that rounds and steps are counts."""
        where = f"metrics of {self.sender}"
        if len(self.values) > MAX_FIGURES or any(len(name) > MAX_FIGURE_NAME for name in self.values):
            raise BadMessageError(f"{where}: over {MAX_FIGURES} figures, or a name of over {MAX_FIGURE_NAME} letters")
        if "client" in self.values:
            raise BadMessageError(f"{where}: a figure cannot have the name client")
        for name in COUNTING_FIGURES:
            if not 0 <= self.values.get(name, 0) <= MAX_COUNT:
                raise BadMessageError(f"{where}: {name} must be a count; got {self.values[name]}")

    def deliver(self, accepted: dict[str, ArrayMessage], record: Callable[[Mapping[str, float]], None]) -> None:
        """Record the figures."""
        record(self.values)


def check_count(message: Message, count: int) -> None:
    """Raise `BadMessageError` unless the number of samples is positive and possible."""
    if not 1 <= count <= MAX_COUNT:
        raise BadMessageError(f"{message.kind} of {message.sender}: count must be 1 to {MAX_COUNT}; got {count}")
