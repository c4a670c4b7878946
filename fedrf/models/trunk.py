"""All samples of a client behind the part of its network that does not learn, computed once where that is possible."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrf.config.schema import ModelConfig
from fedrf.data.samples import Content, Joined, Samples
from fedrf.models.extractors import Preparation
from fedrf.models.trunk_cache import Entry

# Always so many at a time, filled up if need be: a sample's output then does not depend on its company, and it makes
# no difference to any bit whether, when and with which others it was computed.
PIECE = 32
ROWS = 1024  # at a time, where samples are arrays and the trunk is cheap
IN_MEMORY = 1 << 30  # bytes: more than that stays in the file, or is computed when it is needed
AT_ONCE = 1 << 26  # bytes of rows that are handed out together
VERSION = 1  # of what is on disk
REPORT_SECONDS = 1.0

Indices = NDArray[np.int64]
Fetch = Callable[[Indices], Tensor]
Progress = Callable[[int, int], None]


class TrunkRows:
    """As much of a tensor as training needs, wherever the rows are: in memory, in a file, or yet to be computed."""

    def __init__(self, count: int, fetch: Fetch) -> None:
        self._count, self._fetch = count, fetch

    @classmethod
    def of(cls, values: Tensor) -> TrunkRows:
        """Return rows that are in memory."""
        return cls(len(values), lambda rows: values[torch.from_numpy(rows)])

    @classmethod
    def joined(cls, parts: Sequence[TrunkRows]) -> TrunkRows:
        """Return the rows of several domains, one after the other."""
        ends = np.cumsum([len(part) for part in parts])

        def fetch(rows: Indices) -> Tensor:
            owners = np.searchsorted(ends, rows, side="right")
            found = [(owners == one).nonzero()[0] for one in range(len(parts))]
            pieces = [
                part[rows[places] - end + len(part)] for part, end, places in zip(parts, ends, found, strict=True)
            ]
            together = torch.cat([piece for piece in pieces if len(piece)] or pieces)
            return together[torch.from_numpy(np.argsort(np.concatenate(found), kind="stable"))]

        return cls(int(ends[-1]), fetch)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: Tensor | Indices) -> Tensor:
        values = self._fetch(np.asarray(rows))
        return values.float() if values.dtype == torch.float16 else values

    def split(self, size: int) -> Iterator[Tensor]:
        """Yield all rows in order, `size` at a time, or fewer where they are large."""
        return self.pieces(np.arange(self._count), size)

    def pieces(self, rows: Indices, size: int) -> Iterator[Tensor]:
        """Yield some rows, `size` at a time, or fewer where they are large."""
        size = max(1, min(size, AT_ONCE // self._row_bytes))
        return (self[rows[start : start + size]] for start in range(0, len(rows), size))

    @cached_property
    def _row_bytes(self) -> int:
        return max(1, self[np.zeros(1, dtype=np.int64)].nbytes)


class Trunk:
    """Puts samples through preparation and fixed layers."""

    def __init__(
        self, layers: nn.Module, prepare: Preparation, content: Content, device: torch.device, threads: int = 1
    ) -> None:
        self.layers, self.prepare, self.content, self.device = layers.to(device).eval(), prepare, content, device
        # Threads, because decoding and scaling happen outside of Python's lock: see benchmarks/backbones.py.
        self._pool = ThreadPoolExecutor(threads)

    @property
    def key(self) -> str:
        """Name the outputs by all that they depend on."""
        digest = hashlib.blake2b(digest_size=16)
        makers = (VERSION, torch.__version__, PIL.__version__, self.device.type)
        digest.update(repr((makers, self.content.fingerprint, self.prepare, self.layers)).encode())
        for name, weights in self.layers.state_dict().items():
            digest.update(name.encode())
            digest.update(weights.detach().cpu().contiguous().numpy().data.cast("B"))
        return digest.hexdigest()

    def pictures(self, rows: Indices) -> Tensor:
        """Decode and prepare."""
        return torch.from_numpy(np.stack(list(self._pool.map(self._picture, rows))))

    def _picture(self, row: int) -> NDArray[np.uint8]:
        return self.prepare(self.content.image(row))

    @torch.no_grad()
    def outputs(self, pictures: Tensor) -> Tensor:
        """Put prepared pictures through the layers."""
        if isinstance(self.layers, nn.Identity):
            return pictures
        pieces = []
        for piece in pictures.split(PIECE):
            full = torch.cat([piece, piece[-1:].expand(PIECE - len(piece), *piece.shape[1:])])
            pieces.append(self.layers(full.to(self.device))[: len(piece)].cpu())
        return torch.cat(pieces)

    def __call__(self, rows: Indices) -> Tensor:
        """Return the outputs for some rows."""
        return self.outputs(self.pictures(rows))

    def in_pieces(self, rows: Indices, still: Callable[[Indices], Indices]) -> Iterator[tuple[Indices, Tensor]]:
        """Yield pieces of rows with their outputs, decoding one ahead; `still` tells which are yet to be done."""
        with ThreadPoolExecutor(1) as ahead:
            upcoming: tuple[Indices, Future[Tensor]] | None = None
            while len(rows) or upcoming:
                current, upcoming = upcoming, None
                if len(rows := still(rows)):
                    piece, rows = rows[:PIECE], rows[PIECE:]
                    upcoming = (piece, ahead.submit(self.pictures, piece))
                if current:
                    yield current[0], self.outputs(current[1].result())


def trunk_rows(
    layers: nn.Module,
    prepare: Preparation | None,
    samples: Samples,
    settings: ModelConfig,
    device: torch.device | str = "cpu",
    threads: int = 1,
    progress: Progress = lambda done, total: None,
    note: Callable[[str], None] = warnings.warn,
) -> TrunkRows:
    """Put all samples through fixed layers, or make ready for doing so batch by batch.

    Parameters
    ----------
    prepare
        What the backbone does to pictures first; None where samples go into the layers as they are.
    progress
        Is told, about once a second, how many samples are done.
    note
        Is told what people should know.
    """
    if isinstance(samples.content, Joined):
        # Each domain on its own, so that what the cache has of it is used.
        joined = TrunkRows.joined(
            [
                trunk_rows(layers, prepare, part, settings, device, threads, progress, note)
                for part in samples.content.parts
            ]
        )
        return TrunkRows(len(samples), lambda wanted: joined[samples.rows[wanted]])
    if prepare is None:
        values = torch.from_numpy(samples.array())
        with torch.no_grad():
            return TrunkRows.of(torch.cat([layers(rows) for rows in values.split(ROWS)]))
    trunk = Trunk(layers, prepare, samples.content, torch.device(device), threads)
    if settings.cache == "off":
        return _as_needed(trunk, samples.rows, settings, progress)
    stored = _from_disk(trunk, samples.rows, settings, progress) if settings.cache == "disk" else None
    if stored is not None:
        return stored
    needed = len(samples) * _rounded(trunk(samples.rows[:1]), settings).nbytes
    fits = settings.cache == "memory" or needed <= IN_MEMORY
    if settings.cache == "disk":
        note(
            f"the backbone's outputs take {needed / 1e9:.1f} GB, and FEDRF_CACHE_GB has no room for them: "
            + ("they are kept in memory" if fits else "they are computed again for every batch")
        )
    if fits:
        return TrunkRows.of(_collect(trunk, samples.rows, settings, progress))
    return _as_needed(trunk, samples.rows, settings, progress)


def _as_needed(trunk: Trunk, rows: Indices, settings: ModelConfig, progress: Progress) -> TrunkRows:
    """Compute outputs for each batch anew; pictures are decoded once where they fit into memory."""
    one = trunk.pictures(rows[:1])
    if len(rows) * one.nbytes > IN_MEMORY:
        return TrunkRows(len(rows), lambda wanted: _rounded(trunk(rows[wanted]), settings))
    pictures, report = one.new_empty((len(rows), *one.shape[1:])), _sometimes(progress, len(rows))
    for start in range(0, len(rows), PIECE):
        some = trunk.pictures(rows[start : start + PIECE])
        pictures[start : start + len(some)] = some
        report(len(some))
    return TrunkRows(len(rows), lambda wanted: _rounded(trunk.outputs(pictures[torch.from_numpy(wanted)]), settings))


def _collect(trunk: Trunk, rows: Indices, settings: ModelConfig, progress: Progress) -> Tensor:
    report, pieces = _sometimes(progress, len(rows)), []
    for _, outputs in trunk.in_pieces(rows, lambda left: left):
        pieces.append(_rounded(outputs, settings))
        report(len(outputs))
    return torch.cat(pieces)


def _from_disk(trunk: Trunk, rows: Indices, settings: ModelConfig, progress: Progress) -> TrunkRows | None:
    """Compute what no process has computed yet, and read the rest; None if there is no room for it."""
    key = f"{trunk.key}-{settings.cache_precision}"
    entry = Entry.find(key)
    left = rows if entry is None else entry.missing(rows)
    if len(left):
        # In any order: processes that need the same rows then share the work, because each looks what is still missing.
        pieces = np.split(left, range(PIECE, len(left), PIECE))
        left = np.concatenate([pieces[one] for one in np.random.default_rng().permutation(len(pieces))])
        first = _rounded(trunk(left[:PIECE]), settings).numpy()
        entry = Entry.reserve(key, len(trunk.content), first[0], left)
        if entry is None:
            return None
        entry.write(left[:PIECE], first)
        report = _sometimes(progress, len(rows))
        report(len(rows) - len(left) + len(first))
        for done, outputs in trunk.in_pieces(left[PIECE:], entry.missing):
            entry.write(done, _rounded(outputs, settings).numpy())
            report(len(done))
        progress(len(rows), len(rows))
    assert entry is not None
    stored = entry.values()
    if len(rows) * stored[0].nbytes <= IN_MEMORY:
        return TrunkRows.of(torch.from_numpy(stored[rows]))
    return TrunkRows(len(rows), lambda wanted: torch.from_numpy(stored[rows[wanted]]))


def _rounded(outputs: Tensor, settings: ModelConfig) -> Tensor:
    if settings.cache_precision == "float32" or not outputs.is_floating_point():
        return outputs
    half = outputs.half()
    if not half.isfinite().all():
        raise ValueError("model.cache_precision=float16: the backbone's outputs are too large for it; take float32")
    return half


def _sometimes(progress: Progress, total: int) -> Callable[[int], None]:
    """Return a function that adds up and tells `progress` about once a second."""
    done, told = 0, float("-inf")

    def report(more: int) -> None:
        nonlocal done, told
        done += more
        if time.monotonic() - told >= REPORT_SECONDS or done >= total:
            told = time.monotonic()
            progress(done, total)

    return report
