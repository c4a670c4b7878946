"""Split one domain over several clients: disjoint and complete parts of at least 2 samples each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
MIN_SAMPLES = 2  # of each client
MAX_DRAWS = 1000


def partition(
    kind: str,
    labels: Integers,
    count: int,
    random: np.random.RandomState,
    concentration: float = 0.5,
    shards: int = 2,
) -> list[Integers]:
    """Split samples over clients.

    Parameters
    ----------
    kind
        Name in `PARTITIONERS`.
    labels
        Labels of all samples.
    count
        Number of clients.
    random
        Random state; the same state gives the same parts.
    concentration
        Concentration of the Dirichlet distribution, for ``dirichlet`` and ``size``; small values give uneven parts.
    shards
        Number of shards for each client, for ``shards``.

    Returns
    -------
    The sorted positions of each client's samples.
    """
    if kind not in PARTITIONERS:
        raise ValueError(f"data.partition must be one of {', '.join(PARTITIONERS)}; got {kind!r}")
    if count * MIN_SAMPLES > len(labels):
        raise ValueError(
            f"data.clients={count}: {len(labels):,} samples are too few for clients with at least {MIN_SAMPLES} each; "
            f"use at most {len(labels) // MIN_SAMPLES} clients"
        )
    owners = PARTITIONERS[kind](labels, count, random, concentration, shards)
    # Stable, so that positions stay sorted within each client.
    return np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners, minlength=count))[:-1])


def _even(labels: Integers, count: int, random: np.random.RandomState, concentration: float, shards: int) -> Integers:
    """Assign samples at random; sizes differ by at most 1."""
    return random.permutation(np.arange(len(labels)) % count)


def _dirichlet(
    labels: Integers, count: int, random: np.random.RandomState, concentration: float, shards: int
) -> Integers:
    """Split each class by its own draw of a Dirichlet distribution, which gives skewed labels.

    With so many clients that one has too few samples in every draw, it gets samples of the largest clients.
    """
    totals = np.unique(labels, return_counts=True)[1]
    for _ in range(MAX_DRAWS):
        sizes = _rounded_sizes(totals, _dirichlet_shares((len(totals), count), random, concentration), random)
        if sizes.sum(axis=0).min() >= MIN_SAMPLES:
            return _owners(labels, sizes, random)
    return _owners(labels, _filled(sizes), random)


def _owners(labels: Integers, sizes: Integers, random: np.random.RandomState) -> Integers:
    """Assign as many samples of each class (rows) to each client (columns) as `sizes` says."""
    num_classes, count = sizes.shape
    owners = np.empty_like(labels)
    owners[_by_label(labels, random)] = np.repeat(np.tile(np.arange(count), num_classes), sizes.ravel())
    return owners


def _filled(sizes: Integers) -> Integers:
    """Move samples, one at a time, from the largest client's largest class to clients with too few."""
    filled = sizes.copy()
    while (totals := filled.sum(axis=0)).min() < MIN_SAMPLES:
        largest = totals.argmax()
        kind = filled[:, largest].argmax()
        filled[kind, largest] -= 1
        filled[kind, totals.argmin()] += 1
    return filled


def _shards(labels: Integers, count: int, random: np.random.RandomState, concentration: float, shards: int) -> Integers:
    """Sort samples by label, cut them into equal shards, and assign shards to clients at random."""
    num_shards, num_samples = count * shards, len(labels)
    if num_shards > num_samples:
        raise ValueError(
            f"data.shards={shards} and data.clients={count} need {num_shards:,} samples; there are {num_samples:,}, "
            f"enough for data.shards={num_samples // count}"
        )
    owners = np.empty_like(labels)
    shard = np.arange(num_samples) * num_shards // num_samples
    owners[_by_label(labels, random)] = random.permutation(np.arange(num_shards) % count)[shard]
    return owners


def _size(labels: Integers, count: int, random: np.random.RandomState, concentration: float, shards: int) -> Integers:
    """Draw sizes from a Dirichlet distribution, and samples at random: all samples count as one class."""
    return _dirichlet(np.zeros_like(labels), count, random, concentration, shards)


def _by_label(labels: Integers, random: np.random.RandomState) -> Integers:
    """Return positions sorted by label, in random order within a label."""
    return np.lexsort((random.permutation(len(labels)), labels))


def _dirichlet_shares(
    shape: tuple[int, int], random: np.random.RandomState, concentration: float
) -> NDArray[np.float64]:
    """Draw rows of a Dirichlet distribution.

    The draws are computed in logarithms, because those of NumPy are 0/0 for a small concentration. A gamma variable of
    shape a is distributed like one of shape a + 1, times a uniform variable to the power of 1/a.
    """
    shape_parameter = np.clip(concentration, 1e-300, 1e300)
    logs = np.log(random.gamma(shape_parameter + 1, size=shape)) + np.log1p(-random.rand(*shape)) / shape_parameter
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _rounded_sizes(totals: Integers, shares: NDArray[np.float64], random: np.random.RandomState) -> Integers:
    """Round the shares of each total to whole numbers, without bias even for small classes."""
    edges = np.floor(totals[:, None] * np.cumsum(shares, axis=1) + random.rand(len(totals), 1))
    edges = np.minimum(edges, totals[:, None])
    edges[:, -1] = totals  # shares may not add up to exactly 1
    return np.diff(edges, axis=1, prepend=0).astype(np.int64)


Partitioner = Callable[[Integers, int, np.random.RandomState, float, int], Integers]
PARTITIONERS: dict[str, Partitioner] = {"even": _even, "dirichlet": _dirichlet, "shards": _shards, "size": _size}
