"""Samples of one client: rows of a domain's content, with their labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedrf.data.content import Arrays, Content, CorruptImageError, ImageFiles, digest

Labels = NDArray[np.int64]


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
        """Digest of all parts and of the rows that they contain."""
        return digest(part.content.fingerprint.encode() + part.rows.tobytes() for part in self.parts)

    def image(self, row: int) -> Image.Image:
        """Return one sample as an image."""
        part, part_row = self._locate(row)
        return part.content.image(part_row)

    def name(self, row: int) -> str:
        """Return the name of one sample in its domain."""
        part, part_row = self._locate(row)
        return part.content.name(part_row)

    def _locate(self, row: int) -> tuple[Samples, int]:
        """Return the part that contains a row, and the row in the content of this part."""
        index = int(np.searchsorted(self._ends, row, side="right"))
        part = self.parts[index]
        return part, int(part.rows[row - int(self._ends[index]) + len(part)])


@dataclass(frozen=True, eq=False)
class Samples:
    """A selection of rows of a domain.

    Attributes
    ----------
    content
        All samples of the domain.
    rows
        Positions of the selected samples in `content`.
    labels
        Labels of the selected samples; None for the client of the target.
    skipped
        Number of corrupt images of the domain that were left out.
    notes
        Remarks about the domain that are shown to the user.
    """

    content: Content
    rows: NDArray[np.int64]
    labels: Labels | None
    skipped: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def all_of(cls, content: Content, labels: NDArray[Any] | None) -> Samples:
        """Return all samples of a domain."""
        if labels is not None and not np.issubdtype(np.asarray(labels).dtype, np.integer):
            raise ValueError(f"labels must be integers; got {np.asarray(labels).dtype}")
        return cls(content, np.arange(len(content)), None if labels is None else np.asarray(labels, np.int64))

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
        """Size of the samples in memory or on disk, in bytes, with 8 bytes for each label."""
        content = self.content
        if isinstance(content, Joined):
            return sum(part.nbytes for part in content.parts)
        if isinstance(content, ImageFiles):
            size = sum((content.folder / content.paths[row]).stat().st_size for row in self.rows)
        else:
            size = self.array().nbytes
        return int(size) + (0 if self.labels is None else int(self.labels.nbytes))

    @classmethod
    def without_values(cls, count: int, labels: Labels | None) -> Samples:
        """Return samples of which only the number and the labels are known."""
        return cls.all_of(Arrays(np.empty((count, 0), dtype=np.float32)), labels)

    def take(self, positions: NDArray[Any]) -> Samples:
        """Return the samples at these positions."""
        labels = None if self.labels is None else self.labels[positions]
        return replace(self, rows=self.rows[positions], labels=labels)

    def without_labels(self) -> Samples:
        """Return the same samples without labels, for the client of the target."""
        return replace(self, labels=None)

    def decodable(self) -> Samples:
        """Decode all image files, and leave out corrupt ones."""
        if not isinstance(self.content, ImageFiles):
            return self
        intact = np.array([not error for error in self.decoding_errors()], dtype=bool)
        return replace(self.take(np.flatnonzero(intact)), skipped=int((~intact).sum()))

    def decoding_errors(self) -> Iterator[str]:
        """Decode all image files; yield the error message of each, or an empty text if there is no error."""
        if not isinstance(self.content, ImageFiles):
            return
        pool = ThreadPoolExecutor(os.cpu_count())
        try:
            yield from pool.map(self._decoding_error, self.rows)
        finally:
            pool.shutdown(cancel_futures=True)  # otherwise Ctrl-C would wait for all other files

    def _decoding_error(self, row: int) -> str:
        try:
            self.content.image(row)
        except CorruptImageError as error:
            return str(error)
        return ""

    def standardised(self) -> Samples:
        """Return features with mean 0 and standard deviation 1 in each column; constant columns become 0."""
        if len(self.content.shape or ()) != 1:
            raise ValueError("data.scale=standard is for features, and these samples are images; use data.scale=none")
        wide = self.array().astype(np.float64)
        deviation = wide.std(axis=0)
        scaled = (wide - wide.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
        content = Arrays(scaled.astype(np.float32), self.names())
        return replace(self, content=content, rows=np.arange(len(self)))

    def array(self) -> NDArray[Any]:
        """Return the values of samples that are in memory."""
        if not isinstance(self.content, Arrays):
            raise ValueError("these samples are image files, not arrays in memory")
        return self.content.values[self.rows]

    def names(self) -> list[str]:
        """Return the names of the samples."""
        return [self.content.name(row) for row in self.rows]
