"""Parts of the model with fewer bytes: differences with few bits or of low rank (`federation.compression`).

Who sends a part and who receives it hold the same array from an earlier message, down to the last bit. What crosses is
the difference from it, rounded. What rounding leaves out is added to the next difference (error feedback), so that it
arrives later instead of never. Decoding has only operations whose results IEEE 754 fixes, element by element: two
machines decode the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrf.protocol.quantized import Quantized

Array = NDArray[np.float32]
Code = tuple[NDArray[Any], ...]

NUMBER_BYTES = 8
BLOCK = 256  # numbers with a common factor
RANK_SHARE = 0.1  # of the smaller side of a matrix


class Difference(NamedTuple):
    """Stands for an array on the way: what changed since an array that the receiver has.

    Attributes
    ----------
    base
        The number of that array.
    steps
        Coded differences, to be added one after the other.
    """

    base: int
    steps: tuple[Code, ...]

    @property
    def nbytes(self) -> int:
        """Size of the codes and of the number of the array in bytes."""
        return NUMBER_BYTES + sum(size_of(code) for code in self.steps)


class Codec(Protocol):
    """A way to write an array with fewer bytes, and not exactly."""

    def encode(self, values: Array) -> Code:
        """Return the code of a finite array."""

    def decode(self, code: Code, shape: tuple[int, ...]) -> Array:
        """Return the array of a shape that a code stands for; a `ValueError` if there is none."""


class Half:
    """Half precision."""

    def encode(self, values: Array) -> Code:
        """Return the numbers in half precision; larger ones than it has become the largest."""
        largest = np.finfo(np.float16).max
        return (values.clip(-largest, largest).astype(np.float16),)

    def decode(self, code: Code, shape: tuple[int, ...]) -> Array:
        """Return the numbers in single precision."""
        (numbers,) = _checked(code, ("float16", shape))
        return np.asarray(numbers, np.float32)


class Integers:
    """Integers of 8 or 4 bits, with a factor for each block of 256 numbers in the order of memory.

    Parameters
    ----------
    bits
        Of each number; two of 4 bits share a byte.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def encode(self, values: Array) -> Code:
        """Return integers and factors."""
        flat = values.reshape(-1)
        blocks = np.zeros((-(-flat.size // BLOCK), BLOCK), np.float32)
        blocks.reshape(-1)[: flat.size] = flat
        integers, factors = Quantized.of(blocks.T, largest=2 ** (self.bits - 1) - 1)
        return self._packed(integers.T.reshape(-1)[: flat.size]), factors

    def decode(self, code: Code, shape: tuple[int, ...]) -> Array:
        """Return integers times factors."""
        size = int(np.prod(shape))
        number = "int8" if self.bits == 8 else "uint8"
        packed, factors = _checked(code, (number, (-(-size * self.bits // 8),)), ("float32", (-(-size // BLOCK),)))
        numbers = self._unpacked(packed)[:size].astype(np.float32)
        values: Array = numbers * np.repeat(factors, BLOCK)[:size]
        return values.reshape(shape)

    def _packed(self, integers: NDArray[np.int8]) -> NDArray[Any]:
        if self.bits == 8:
            return integers
        pairs = np.zeros(integers.size + integers.size % 2, np.uint8)
        pairs[: integers.size] = integers + 8
        return pairs[::2] << 4 | pairs[1::2]

    def _unpacked(self, packed: NDArray[Any]) -> NDArray[np.int8]:
        if self.bits == 8:
            return packed
        return np.stack([packed >> 4, packed & 15], axis=1).reshape(-1).astype(np.int8) - np.int8(8)


class LowRank:
    """The best approximation of a matrix by one whose rank is a tenth of its smaller side; other arrays as `Integers`.

    Both factors are in half precision. The columns of the right one are orthonormal.
    """

    others = Integers(8)

    def encode(self, values: Array) -> Code:
        """Return both factors."""
        if values.ndim != 2:
            return self.others.encode(values)
        wide = values.astype(np.float64)
        rank = _rank(values.shape)
        if wide.shape[0] < wide.shape[1]:
            left = np.linalg.eigh(wide @ wide.T)[1][:, -rank:]
            right = wide.T @ left
        else:
            right = np.linalg.eigh(wide.T @ wide)[1][:, -rank:]
            left = wide @ right
        return (*Half().encode(left.T.astype(np.float32)), *Half().encode(right.T.astype(np.float32)))

    def decode(self, code: Code, shape: tuple[int, ...]) -> Array:
        """Return the product of the factors."""
        if len(shape) != 2:
            return self.others.decode(code, shape)
        rank = _rank(shape)
        left, right = _checked(code, ("float16", (rank, shape[0])), ("float16", (rank, shape[1])))
        total = np.zeros(shape, np.float32)
        for column, row in zip(left.astype(np.float32), right.astype(np.float32), strict=True):
            total += column[:, None] * row  # not a product of matrices, whose last bits differ between machines
        return total


CODECS: Mapping[str, Codec] = {"half": Half(), "int8": Integers(8), "int4": Integers(4), "low-rank": LowRank()}


def codec_of(compression: str) -> Codec | None:
    """Return how parts are coded for a value of `federation.compression`; None: they are not."""
    return CODECS.get(compression)


def size_of(code: Code) -> int:
    """Return the size of a code in bytes."""
    return sum(array.nbytes for array in code)


def rounded(codec: Codec, values: Array) -> tuple[Code, Array]:
    """Return the code of a finite array, and the array that it stands for."""
    code = codec.encode(values)
    return code, codec.decode(code, values.shape)


def _rank(shape: tuple[int, ...]) -> int:
    return max(1, round(RANK_SHARE * min(shape)))


def _checked(code: Code, *expected: tuple[str, tuple[int, ...]]) -> Code:
    """Return the arrays of a code; a `ValueError` unless they have these types and shapes."""
    arrays = code if isinstance(code, tuple) else ()
    got = [(str(array.dtype), array.shape) if isinstance(array, np.ndarray) else None for array in arrays]
    if got != list(expected):
        raise ValueError(f"a code has arrays {list(expected)}; got {got}")
    return code
