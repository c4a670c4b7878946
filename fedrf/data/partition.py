"""How one domain is split over several clients: disjoint parts that together are all of it, at least 2 samples each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
LEAST = 2
DRAWS = 1000


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
        Of all samples.
    count
        Number of clients.
    random
        The same state gives the same parts.
    concentration
        Of the Dirichlet distribution, for ``dirichlet`` and ``size``: small is uneven.
    shards
        Pieces that a client gets, for ``shards``.

    Returns
    -------
    The sorted positions of each client's samples.
    """
    if kind not in PARTITIONERS:
        raise ValueError(f"data.partition must be one of {', '.join(PARTITIONERS)}; got {kind!r}")
    if count * LEAST > len(labels):
        raise ValueError(
            f"data.clients: {len(labels):,} samples are too few for {count} clients with at least {LEAST} each; "
            f"{len(labels) // LEAST} clients would do"
        )
    owners = PARTITIONERS[kind](labels, count, random, concentration, shards)
    # Stable, so that positions stay sorted within each client.
    return np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners, minlength=count))[:-1])


def _even(labels: Integers, count: int, random: np.random.RandomState, concentration: float, shards: int) -> Integers:
    """Deal samples out at random: sizes differ by at most 1."""
    return random.permutation(np.arange(len(labels)) % count)


def _dirichlet(
    labels: Integers, count: int, random: np.random.RandomState, concentration: float, shards: int
) -> Integers:
    """Share each class out by its own draw of a Dirichlet distribution: skewed labels."""
    totals = np.unique(labels, return_counts=True)[1]
    for _ in range(DRAWS):
        sizes = _shared_out(totals, _dirichlet_shares((len(totals), count), random, concentration), random)
        if sizes.sum(axis=0).min() >= LEAST:
            owners = np.empty_like(labels)
            owners[_by_label(labels, random)] = np.repeat(np.tile(np.arange(count), len(totals)), sizes.ravel())
            return owners
    raise ValueError(
        f"data.concentration={concentration:g}, {len(labels):,} samples and {count} clients (data.clients): one had "
        f"fewer than {LEAST} in each of {DRAWS:,} draws; a larger data.concentration or fewer data.clients would do"
    )


def _shards(labels: Integers, count: int, random: np.random.RandomState, concentration: float, shards: int) -> Integers:
    """Sort samples by label, cut them into equal pieces, and give each client some of these at random."""
    pieces, number = count * shards, len(labels)
    if pieces > number:
        raise ValueError(
            f"data.shards={shards} for each of {count} clients (data.clients) asks for {pieces:,} pieces of {number:,} "
            f"samples; data.shards={number // count} would do"
        )
    owners = np.empty_like(labels)
    piece = np.arange(number) * pieces // number
    owners[_by_label(labels, random)] = random.permutation(np.arange(pieces) % count)[piece]
    return owners


def _size(labels: Integers, count: int, random: np.random.RandomState, concentration: float, shards: int) -> Integers:
    """Draw sizes from a Dirichlet distribution, and samples at random: all of them are one class here."""
    return _dirichlet(np.zeros_like(labels), count, random, concentration, shards)


def _by_label(labels: Integers, random: np.random.RandomState) -> Integers:
    """Return positions sorted by label, in random order within a label."""
    return np.lexsort((random.permutation(len(labels)), labels))


def _dirichlet_shares(
    shape: tuple[int, int], random: np.random.RandomState, concentration: float
) -> NDArray[np.float64]:
    """Draw rows of a Dirichlet distribution.

    Logarithms, because NumPy's own are 0/0 for a small concentration: a gamma variable of shape a is one of shape
    a + 1 times a uniform one to the power of 1/a.
    """
    shape_parameter = np.clip(concentration, 1e-300, 1e300)
    logs = np.log(random.gamma(shape_parameter + 1, size=shape)) + np.log1p(-random.rand(*shape)) / shape_parameter
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _shared_out(totals: Integers, shares: NDArray[np.float64], random: np.random.RandomState) -> Integers:
    """Round shares of each total to whole numbers: right on average, however small a class is."""
    edges = np.floor(totals[:, None] * np.cumsum(shares, axis=1) + random.rand(len(totals), 1))
    edges = np.minimum(edges, totals[:, None])
    edges[:, -1] = totals  # whatever the sum of shares was rounded to
    return np.diff(edges, axis=1, prepend=0).astype(np.int64)


Partitioner = Callable[[Integers, int, np.random.RandomState, float, int], Integers]
PARTITIONERS: dict[str, Partitioner] = {"even": _even, "dirichlet": _dirichlet, "shards": _shards, "size": _size}
