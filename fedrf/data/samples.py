"""Samples of one client, as they lie: arrays in memory, or image files that are decoded when they are needed."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedrf.errors import reason

Labels = NDArray[np.int64]


class Content(ABC):
    """Everything that a domain has, without labels."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one sample; None for image files, which are of any size."""

    @cached_property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hex digits that change when a sample does."""

    @abstractmethod
    def image(self, row: int) -> Image.Image:
        """Return one sample as a picture."""

    @abstractmethod
    def name(self, row: int) -> str:
        """Return what people know a sample by."""


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
        """Of all numbers."""
        values = np.ascontiguousarray(self.values)
        return _digest([repr((values.dtype.str, values.shape)).encode(), values.data.cast("B")])

    def image(self, row: int) -> Image.Image:
        """Return one sample as a grey or coloured picture."""
        values = self.values[row]
        if values.dtype != np.uint8:
            values = np.clip(np.rint(255 * values), 0, 255).astype(np.uint8)
        return Image.fromarray(values[0] if len(values) == 1 else np.moveaxis(values, 0, -1))

    def name(self, row: int) -> str:
        """Return the name, or without any the position in the file."""
        return str(row) if self.names is None else self.names[row]


class ImageFiles(Content):
    """Image files below one folder, by their paths relative to it."""

    shape = None

    def __init__(self, folder: Path, paths: Sequence[str]) -> None:
        self.folder, self.paths = folder, tuple(paths)

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def fingerprint(self) -> str:
        """Of folder, all paths, sizes and times of change: what can be told without reading the files."""
        stats = ((path, (self.folder / path).stat()) for path in self.paths)
        files = (repr((path, stat.st_size, stat.st_mtime_ns)).encode() for path, stat in stats)
        return _digest((str(self.folder.resolve()).encode(errors="surrogateescape"), *files))

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
        """Return the relative path."""
        return self.paths[row]


class Joined(Content):
    """Samples of several domains, one after the other."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        self.parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one sample."""
        return self.parts[0].content.shape

    @cached_property
    def fingerprint(self) -> str:
        """Of all parts, and of which rows they have."""
        return _digest(part.content.fingerprint.encode() + part.rows.tobytes() for part in self.parts)

    def image(self, row: int) -> Image.Image:
        """Return one sample as a picture."""
        part, inside = self._place(row)
        return part.content.image(inside)

    def name(self, row: int) -> str:
        """Return what people know a sample by in its domain."""
        part, inside = self._place(row)
        return part.content.name(inside)

    def _place(self, row: int) -> tuple[Samples, int]:
        index = int(np.searchsorted(self._ends, row, side="right"))
        part = self.parts[index]
        return part, int(part.rows[row - int(self._ends[index]) + len(part)])


class CorruptImageError(ValueError):
    """An image file that cannot be decoded."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Some rows of a domain.

    Attributes
    ----------
    labels
        Of these rows; a target's client gets none.
    skipped
        Images of the domain that were left out, because they are corrupt.
    notes
        What people should know about the domain.
    """

    content: Content
    rows: NDArray[np.int64]
    labels: Labels | None
    skipped: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def all_of(cls, content: Content, labels: NDArray[Any] | None) -> Samples:
        """Return all samples of a domain."""
        return cls(content, np.arange(len(content)), None if labels is None else labels.astype(np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Samples:
        """Return the samples of several domains as one; each must have labels."""
        notes = tuple(note for part in parts for note in part.notes)
        labels = np.concatenate([part.labels for part in parts if part.labels is not None])
        return replace(cls.all_of(Joined(parts), labels), notes=notes)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """What the samples take as they lie, in bytes, with eight for each label."""
        content = self.content
        if isinstance(content, Joined):
            return sum(part.nbytes for part in content.parts)
        if isinstance(content, ImageFiles):
            size = sum((content.folder / content.paths[row]).stat().st_size for row in self.rows)
        else:
            size = self.array().nbytes
        return int(size) + (0 if self.labels is None else int(self.labels.nbytes))

    def take(self, positions: NDArray[Any]) -> Samples:
        """Return the samples at these positions."""
        labels = None if self.labels is None else self.labels[positions]
        return replace(self, rows=self.rows[positions], labels=labels)

    def without_labels(self) -> Samples:
        """Return the same samples for a client that must not see labels."""
        return replace(self, labels=None)

    def decodable(self) -> Samples:
        """Decode all images to find those that cannot be, and leave them out."""
        if not isinstance(self.content, ImageFiles):
            return self
        sound = np.array([not complaint for complaint in self.complaints()], dtype=bool)
        return replace(self.take(np.flatnonzero(sound)), skipped=int((~sound).sum()))

    def complaints(self) -> Iterator[str]:
        """Decode all image files; yield for each what is wrong with it, nothing for a sound one."""
        if not isinstance(self.content, ImageFiles):
            return
        pool = ThreadPoolExecutor(os.cpu_count())
        try:
            yield from pool.map(self._complaint, self.rows)
        finally:
            pool.shutdown(cancel_futures=True)  # so that Ctrl-C need not wait for all the others

    def _complaint(self, row: int) -> str:
        try:
            self.content.image(row)
        except CorruptImageError as error:
            return str(error)
        return ""

    def standardised(self) -> Samples:
        """Return features with mean 0 and deviation 1 in each column of these samples; constant columns become 0."""
        if len(self.content.shape or ()) != 1:
            raise ValueError("data.scale=standard is for rows of features, and these samples are images: leave it out")
        wide = self.array().astype(np.float64)
        deviation = wide.std(axis=0)
        scaled = (wide - wide.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
        content = Arrays(scaled.astype(np.float32), self.names())
        return replace(self, content=content, rows=np.arange(len(self)))

    def array(self) -> NDArray[Any]:
        """Return the samples themselves, where they are in memory."""
        if not isinstance(self.content, Arrays):
            raise ValueError("these samples are image files, and not in memory")
        return self.content.values[self.rows]

    def names(self) -> list[str]:
        """Return what people know the samples by."""
        return [self.content.name(row) for row in self.rows]


def _digest(pieces: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
