"""Plain values and arrays as bytes: the format of checkpoints and of what clients send.

The bytes are a safetensors file. Its arrays are those of the value; its metadata have the structure of the value as
JSON, and an XXH3 digest of structure and arrays, which detects damage but not forgery. Reading it creates numbers,
texts, containers, arrays and instances of classes that the caller names, and runs no code from the bytes. An array that
occurs twice is stored once.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

Types = Sequence[type]
MAX_HEADER_BYTES = 50_000_000
MAX_DEPTH = 50  # of nested containers
NAMES = {  # of types of numbers in safetensors files
    "|b1": "BOOL",
    "|i1": "I8",
    "<i2": "I16",
    "<i4": "I32",
    "<i8": "I64",
    "|u1": "U8",
    "<u2": "U16",
    "<u4": "U32",
    "<u8": "U64",
    "<f2": "F16",
    "<f4": "F32",
    "<f8": "F64",
    "<c8": "C64",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


class DamagedError(ValueError):
    """Bytes that are not an intact archive; the text says why."""


def pack(value: Any, types: Types = ()) -> bytes:
    """Return a value as bytes.

    Parameters
    ----------
    value
        Numbers, texts, bytes, None, NumPy arrays, CPU tensors, instances of `types`, and lists, tuples, sets,
        dictionaries and counters of these.
    types
        Dataclasses and named tuples that may occur.
    """
    writer = _Writer(types)
    structure = json.dumps(writer.plain(value), separators=(",", ":"))
    arrays = {str(number): array for number, array in enumerate(writer.arrays)}
    return _join(arrays, {"structure": structure, "digest": _digest(structure, arrays)})


def _join(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return a safetensors file with a single copy of the arrays; those of the largest numbers come first."""
    header: dict[str, Any] = {"__metadata__": metadata}
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    end = 0
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": NAMES[array.dtype.str], "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(_bytes_of(array) for _, array in ordered)])


def _bytes_of(array: NDArray[Any]) -> memoryview | bytes:
    """Return the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data if array.size else b""


def unpack(content: bytes | memoryview, types: Types = ()) -> Any:
    """Return the value that `pack` was given; raise `DamagedError` if the bytes are not intact.

    Arrays are views of the bytes, which cannot be changed.
    """
    header, body = _split(content)
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or not all(isinstance(metadata.get(k), str) for k in ("structure", "digest")):
        raise DamagedError("its header is incomplete")
    try:
        arrays = {name: _view(body, **entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise DamagedError(f"its arrays cannot be read ({type(error).__name__})") from None
    structure = metadata["structure"]
    if metadata["digest"] != _digest(structure, arrays):
        raise DamagedError("its content does not match its digest")
    try:
        return _Reader(types, arrays).value(json.loads(structure))
    except DamagedError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise DamagedError(f"its structure cannot be read ({type(error).__name__})") from None


def _split(content: bytes | memoryview) -> tuple[dict[str, Any], memoryview]:
    """Return header and arrays of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    if not 0 < size <= min(len(content) - 8, MAX_HEADER_BYTES):
        raise DamagedError("it is cut off or not in the format of fedrf")
    try:
        header = json.loads(bytes(content[8 : 8 + size]))
    except (ValueError, RecursionError):
        raise DamagedError("its header cannot be read") from None
    if not isinstance(header, dict):
        raise DamagedError("its header cannot be read")
    return header, memoryview(content)[8 + size :].toreadonly()


def _view(body: memoryview, dtype: str, shape: list[int], data_offsets: list[int]) -> NDArray[Any]:
    """Return an array of a safetensors file without copying it."""
    begin, end = data_offsets
    array: NDArray[Any] = np.ndarray(shape, DTYPES[dtype], body[begin:end])
    if begin < 0 or array.nbytes != end - begin:
        raise ValueError
    return array


def _digest(structure: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = xxhash.xxh3_128(structure.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(_bytes_of(array))
    return digest.hexdigest()


class _Writer:
    """Turns values into what JSON has; arrays are collected, and replaced by their numbers."""

    def __init__(self, types: Types) -> None:
        self.types = set(types)
        self.arrays: list[NDArray[Any]] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no identity is used twice

    def plain(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.ndarray):
            return {"$array": self._store(value, value)}
        if type(value) is bytes:
            return {"$bytes": value.hex()}
        if type(value) in self.types:
            names = [item.name for item in fields(value)] if is_dataclass(value) else value._fields
            return {"$type": type(value).__name__, "fields": {name: self.plain(getattr(value, name)) for name in names}}
        if isinstance(value, Counter):
            return {"$counter": self._items(value)}
        if isinstance(value, Mapping):
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {key: self.plain(item) for key, item in value.items()}
            return {"$dict": self._items(value)}
        if type(value) is list:
            return [self.plain(item) for item in value]
        for name, kind in (("$tuple", tuple), ("$set", set)):
            if type(value) is kind:
                return {name: [self.plain(item) for item in (sorted(value) if kind is set else value)]}
        if _is_tensor(value):
            return {"$tensor": self._store(value, value.detach().cpu().numpy())}
        if isinstance(value, np.generic | int | float | str):  # also enumerations of texts and numbers
            return value.item() if isinstance(value, np.generic) else json.loads(json.dumps(value))
        raise TypeError(f"cannot store {type(value).__name__}")

    def _items(self, value: Mapping[Any, Any]) -> list[list[Any]]:
        return [[self.plain(key), self.plain(item)] for key, item in value.items()]

    def _store(self, original: Any, array: NDArray[Any]) -> int:
        if id(original) not in self._numbers:
            self._numbers[id(original)] = len(self.arrays)
            self._kept.append(original)
            self.arrays.append(np.ascontiguousarray(array).reshape(array.shape))
        return self._numbers[id(original)]


class _Reader:
    """Turns the structure back into values."""

    def __init__(self, types: Types, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.types, self.arrays = {kind.__name__: kind for kind in types}, arrays
        self._tensors: dict[int, Any] = {}

    def value(self, plain: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise DamagedError("its containers are nested too deeply")
        if isinstance(plain, list):
            return [self.value(item, depth + 1) for item in plain]
        if not isinstance(plain, dict):
            return plain
        tag = next(iter(plain), "")
        if not tag.startswith("$"):
            return {key: self.value(item, depth + 1) for key, item in plain.items()}
        content = plain[tag]
        if tag == "$array":
            return self.arrays[str(content)]
        if tag == "$tensor":
            return self._tensor(content)
        if tag == "$bytes":
            return bytes.fromhex(content)
        if tag == "$type":
            values = {name: self.value(item, depth + 1) for name, item in plain["fields"].items()}
            return self.types[content](**values)
        items = [self.value(item, depth + 1) for item in content]
        make: dict[str, Callable[[list[Any]], Any]] = {
            "$dict": dict,
            "$counter": lambda pairs: Counter(dict(pairs)),
            "$tuple": tuple,
            "$set": set,
        }
        return make[tag](items)

    def _tensor(self, number: int) -> Any:
        import torch

        if number not in self._tensors:
            self._tensors[number] = torch.from_numpy(self.arrays[str(number)].copy())
        return self._tensors[number]


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # without it there are no tensors
    return torch is not None and isinstance(value, torch.Tensor)
