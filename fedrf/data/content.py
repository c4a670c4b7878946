"""The content of a domain without labels: arrays in memory, or image files that are decoded when they are used."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedrf.errors import reason


class Content(ABC):
    """All samples of a domain, without labels."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one sample; None for image files, whose sizes differ."""

    @cached_property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hexadecimal digest that changes when a sample changes."""

    @abstractmethod
    def image(self, row: int) -> Image.Image:
        """Return one sample as an image."""

    @abstractmethod
    def name(self, row: int) -> str:
        """Return the name of one sample."""


class Arrays(Content):
    """Samples in memory: images (n, c, h, w), uint8 or float32 from 0 to 1, or rows of features (n, p), float32."""

    def __init__(self, values: NDArray[Any], names: Sequence[str] | None = None) -> None:
        self.values, self.names = values, names

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.values.shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all values."""
        values = np.ascontiguousarray(self.values)
        return digest([repr((values.dtype.str, values.shape)).encode(), values.data.cast("B")])

    def image(self, row: int) -> Image.Image:
        """Return one sample as a greyscale or colour image."""
        values = self.values[row]
        if values.dtype != np.uint8:
            values = np.clip(np.rint(255 * values), 0, 255).astype(np.uint8)
        return Image.fromarray(values[0] if len(values) == 1 else np.moveaxis(values, 0, -1))

    def name(self, row: int) -> str:
        """Return the name of one sample; without names, its position in the file."""
        return str(row) if self.names is None else self.names[row]


class CorruptImageError(ValueError):
    """An image file cannot be decoded."""


class ImageFiles(Content):
    """Image files, given by their paths relative to one folder."""

    shape = None

    def __init__(self, folder: Path, paths: Sequence[str]) -> None:
        self.folder, self.paths = folder, tuple(paths)

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the folder and of all paths, sizes and modification times; the files are not read."""
        stats = ((path, (self.folder / path).stat()) for path in self.paths)
        files = (repr((path, stat.st_size, stat.st_mtime_ns)).encode() for path, stat in stats)
        return digest((str(self.folder.resolve()).encode(errors="surrogateescape"), *files))

    def image(self, row: int) -> Image.Image:
        """Decode one file."""
        path = self.folder / self.paths[row]
        try:
            with Image.open(path) as image:
                image.load()
                return image
        except Exception as error:  # Pillow raises anything from OSError to TypeError on a damaged file
            raise CorruptImageError(
                f"{path}: cannot be decoded ({reason(error)}); repair or remove it, or set data.skip_corrupt=true"
            ) from error

    def name(self, row: int) -> str:
        """Return the relative path of one sample."""
        return self.paths[row]


def digest(pieces: Iterable[bytes | memoryview]) -> str:
    """Return a digest of bytes in hexadecimal."""
    state = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        state.update(piece)
    return state.hexdigest()
