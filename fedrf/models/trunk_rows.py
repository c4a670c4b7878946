"""The trunk's outputs for all samples of a client: in memory, in the cache on disk, or computed for each batch."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from math import inf

import numpy as np
import torch
from torch import Tensor, nn

from fedrf.config.schema import ModelConfig
from fedrf.data.samples import Joined, Samples
from fedrf.models.devices import CPU, Device, upload
from fedrf.models.extractors.preparation import Preparation
from fedrf.models.trunk import Indices, Trunk
from fedrf.models.trunk_cache import Entry

ARRAY_BATCH_SIZE = 1024  # where samples are arrays: their trunks are cheap
MEMORY_LIMIT = 1 << 30  # bytes; larger outputs stay in the cache file or are computed for each batch
MAX_PIECE_BYTES = 1 << 26  # of the rows that are read together
REPORT_SECONDS = 1.0

Fetch = Callable[[Indices], Tensor]
Progress = Callable[[int, int], None]


class TrunkRows:
    """Read-only access to the trunk's outputs by row, wherever they are stored.

    Parameters
    ----------
    count
        Number of rows.
    fetch
        Returns the outputs at some positions.
    """

    def __init__(self, count: int, fetch: Fetch) -> None:
        self._count, self._fetch = count, fetch

    @classmethod
    def of(cls, pieces: Iterable[Tensor], count: int, place: torch.device = CPU.torch) -> TrunkRows:
        """Return rows that are in the memory of a device."""
        pieces = iter(pieces)
        first, end = next(pieces), 0
        values = first.new_empty((count, *first.shape[1:]), device=place)
        for piece in chain([first], pieces):
            start, end = end, end + len(piece)
            values[start:end] = upload(piece, place)
        return cls(count, lambda rows: values[torch.from_numpy(rows).to(values.device)])

    @classmethod
    def joined(cls, parts: Sequence[TrunkRows]) -> TrunkRows:
        """Concatenate the rows of several domains."""
        ends = np.cumsum([len(part) for part in parts])

        def fetch(rows: Indices) -> Tensor:
            owners = np.searchsorted(ends, rows, side="right")
            positions = [(owners == owner).nonzero()[0] for owner in range(len(parts))]
            pieces = [
                part[rows[indices] - end + len(part)] for part, end, indices in zip(parts, ends, positions, strict=True)
            ]
            by_part = torch.cat(_on_one_device([piece for piece in pieces if len(piece)] or pieces))
            order = torch.from_numpy(np.argsort(np.concatenate(positions), kind="stable"))
            return by_part[order.to(by_part.device)]

        return cls(int(ends[-1]), fetch)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: Tensor | Indices) -> Tensor:
        values = self._fetch(np.asarray(rows))
        return values.float() if values.dtype == torch.float16 else values

    def split(self, size: int) -> Iterator[Tensor]:
        """Yield all rows in order, at most `size` at a time."""
        return self.pieces(np.arange(self._count), size)

    def pieces(self, rows: Indices, size: int) -> Iterator[Tensor]:
        """Yield some rows, at most `size` at a time; fewer if rows are large."""
        size = max(1, min(size, MAX_PIECE_BYTES // self._row_bytes))
        return (self[rows[start : start + size]] for start in range(0, len(rows), size))

    @cached_property
    def _row_bytes(self) -> int:
        return max(1, self[np.zeros(1, dtype=np.int64)].nbytes)


def trunk_rows(
    layers: nn.Module,
    prepare: Preparation | None,
    samples: Samples,
    settings: ModelConfig,
    device: Device = CPU,
    threads: int = 1,
    progress: Progress = lambda done, total: None,
    warn: Callable[[str], None] = warnings.warn,
) -> TrunkRows:
    """Return the outputs of fixed layers for all samples, stored as `model.cache` says.

    Parameters
    ----------
    prepare
        Resizes and crops images; None if the layers take the samples as they are.
    progress
        Called about once a second with the number of finished samples and of all samples.
    warn
        Called with a message if the outputs do not fit into the cache.
    """
    if isinstance(samples.content, Joined):
        # Each domain separately, so that each uses its own cache file.
        parts = [
            trunk_rows(layers, prepare, part, settings, device, threads, progress, warn)
            for part in samples.content.parts
        ]
        joined = TrunkRows.joined(parts)
        return TrunkRows(len(samples), lambda positions: joined[samples.rows[positions]])
    if prepare is None:
        return _from_arrays(layers, samples, device)
    trunk = Trunk(layers, prepare, samples.content, device.torch, threads)
    stored = _from_disk(trunk, samples.rows, settings, device, progress) if settings.cache == "disk" else None
    return _without_disk(trunk, samples.rows, settings, device, progress, warn) if stored is None else stored


@torch.no_grad()
def _from_arrays(layers: nn.Module, samples: Samples, device: Device) -> TrunkRows:
    values, layers = torch.from_numpy(samples.array()), layers.to(device.torch)
    pieces = (layers(upload(rows, device.torch)) for rows in values.split(ARRAY_BATCH_SIZE))
    first = next(pieces)
    place = device.torch if _fits(len(values) * first[0].nbytes, device) else CPU.torch
    return TrunkRows.of(chain([first], pieces), len(values), place)


def _fits(nbytes: int, device: Device) -> bool:
    """Return whether features may fill so much of the device's memory."""
    device.release()
    return nbytes <= device.room


def _in_memory(
    pieces: Callable[[], Iterable[Tensor]], count: int, nbytes: int, device: Device, limit: float
) -> TrunkRows | None:
    """Return rows in the memory of the device if they fit there, else in that of the host up to a limit, else None."""
    if _fits(nbytes, device):
        try:
            return TrunkRows.of(pieces(), count, device.torch)
        except torch.OutOfMemoryError:  # others have taken the memory meanwhile
            device.release()
    return TrunkRows.of(pieces(), count) if nbytes <= limit else None


def _on_one_device(pieces: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors on the accelerator if one of them is there: its memory may have had no room for the others."""
    place = next((piece.device for piece in pieces if piece.device.type != "cpu"), CPU.torch)
    return [piece.to(place) for piece in pieces]


def _from_disk(
    trunk: Trunk, rows: Indices, settings: ModelConfig, device: Device, progress: Progress
) -> TrunkRows | None:
    """Return rows from the cache, after computing those that it does not have; None if it has no space for them."""
    key = f"{trunk.key}-{settings.cache_precision}"
    entry = Entry.find(key)
    missing = rows if entry is None else entry.missing(rows)
    if len(missing):
        # In random order: each process skips rows that another has written, so they share the work.
        size = trunk.batch_size
        batches = np.split(missing, range(size, len(missing), size))
        missing = np.concatenate([batches[index] for index in np.random.default_rng().permutation(len(batches))])
        first = _rounded(trunk(missing[:size]), settings).cpu().numpy()
        entry = Entry.reserve(key, len(trunk.content), first[0], missing)
        if entry is None:
            return None
        entry.write(missing[:size], first)
        report = _throttled(progress, len(rows))
        report(len(rows) - len(missing) + len(first))
        for batch, outputs in trunk.batches(missing[size:], entry.missing):
            entry.add(batch, _rounded(outputs, settings).cpu().numpy())
            report(len(batch))
        entry.flush()
        progress(len(rows), len(rows))
    assert entry is not None
    stored = entry.values()
    size = max(1, MAX_PIECE_BYTES // stored[0].nbytes)

    def pieces() -> Iterator[Tensor]:
        return (torch.from_numpy(stored[rows[start : start + size]]) for start in range(0, len(rows), size))

    kept = _in_memory(pieces, len(rows), len(rows) * stored[0].nbytes, device, MEMORY_LIMIT)
    if kept is None:
        return TrunkRows(len(rows), lambda positions: torch.from_numpy(stored[rows[positions]]))
    return kept


def _without_disk(
    trunk: Trunk,
    rows: Indices,
    settings: ModelConfig,
    device: Device,
    progress: Progress,
    warn: Callable[[str], None],
) -> TrunkRows:
    """Return rows that are kept in memory if they fit, else computed for each batch."""
    if settings.cache == "off":
        return _per_batch(trunk, rows, settings, progress)
    needed = len(rows) * _rounded(trunk(rows[:1]), settings).nbytes
    report = _throttled(progress, len(rows))

    def pieces() -> Iterator[Tensor]:
        for _, outputs in trunk.batches(rows, lambda remaining: remaining):
            yield _rounded(outputs, settings)
            report(len(outputs))

    kept = _in_memory(pieces, len(rows), needed, device, inf if settings.cache == "memory" else MEMORY_LIMIT)
    if settings.cache == "disk":
        warn(
            f"the backbone's outputs need {needed / 1e9:.1f} GB and do not fit into FEDRF_CACHE_GB: "
            + ("they are computed again for every batch" if kept is None else "they are kept in memory")
        )
    return _per_batch(trunk, rows, settings, progress) if kept is None else kept


def _per_batch(trunk: Trunk, rows: Indices, settings: ModelConfig, progress: Progress) -> TrunkRows:
    """Return rows that are computed for each batch; images are decoded once if they fit into memory."""
    first = trunk.images(rows[:1])
    if len(rows) * first.nbytes > MEMORY_LIMIT:
        return TrunkRows(len(rows), lambda positions: _rounded(trunk(rows[positions]), settings))
    images, report = first.new_empty((len(rows), *first.shape[1:])), _throttled(progress, len(rows))
    for start in range(0, len(rows), trunk.batch_size):
        batch = trunk.images(rows[start : start + trunk.batch_size])
        images[start : start + len(batch)] = batch
        report(len(batch))
    return TrunkRows(
        len(rows), lambda positions: _rounded(trunk.outputs(images[torch.from_numpy(positions)]), settings)
    )


def _rounded(outputs: Tensor, settings: ModelConfig) -> Tensor:
    if settings.cache_precision == "float32" or not outputs.is_floating_point():
        return outputs
    half = outputs.half()
    if not half.isfinite().all():
        raise ValueError("model.cache_precision=float16: the backbone's outputs overflow; use float32")
    return half


def _throttled(progress: Progress, total: int) -> Callable[[int], None]:
    """Return a function that adds up finished samples and calls `progress` about once a second."""
    done, last_report = 0, float("-inf")

    def report(more: int) -> None:
        nonlocal done, last_report
        done += more
        if time.monotonic() - last_report >= REPORT_SECONDS or done >= total:
            last_report = time.monotonic()
            progress(done, total)

    return report
