"""Whose messages are used in round t: S_t of algorithm 5 and the settings of the paper's tables, from the shared seed.

All clients compute the same sets from (seed, t), so agreeing on them needs no communication. The keys
`federation.embeddings_from`, `aligners_from` and `classifiers_from` say for Σℓ, W and C, in this order, whose messages
are used:

============== ==========================================================================
value          sources whose message of this kind is used
============== ==========================================================================
`participants` S_t: all sources, a random subset, or so many (`federation.participants`)
`same`         the same as for the kind before it (for Σℓ: S_t)
`subset`       a random subset of those for the kind before it (for Σℓ: of S_t)
`all`          all sources
`ordered`      one source, in turn
`random`       one random source
`none`         no source
============== ==========================================================================

Each of these messages is lost with probability `federation.drop`, independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fedrf.config.schema import FederationConfig


class Participants(NamedTuple):
    """The sources whose Σℓ, W and C are used in one round."""

    mean_embedding: frozenset[str]
    aligner: frozenset[str]
    classifier: frozenset[str]


class Emptiness(NamedTuple):
    """For Σℓ, W and C: whether no message of this kind is ever used."""

    mean_embedding: bool
    aligner: bool
    classifier: bool


def senders(federation: FederationConfig) -> tuple[str, str, str]:
    """Return the values of the three keys, for Σℓ, W and C."""
    return federation.embeddings_from, federation.aligners_from, federation.classifiers_from


def is_empty(federation: FederationConfig) -> Emptiness:
    """Tell for Σℓ, W and C whether no message is ever used: ``none``, or ``same`` or ``subset`` of that."""
    empty, before = [], False
    for value in senders(federation):
        before = value == "none" or (before and value in ("same", "subset"))
        empty.append(before)
    return Emptiness(*empty)


def random_subset(items: Sequence[str], rng: np.random.RandomState) -> frozenset[str]:
    """Draw a size uniformly from {0 … len(items)}, then so many items without replacement."""
    size = rng.randint(len(items) + 1)
    return frozenset(items[index] for index in rng.permutation(len(items))[:size])


@lru_cache(maxsize=1024)
def sample(count: int, size: int, seed: int, round_number: int) -> frozenset[int]:
    """Return the positions of the sources in S_t if `size` of them take part in each round."""
    return frozenset(_sample(count, size, np.random.RandomState([seed, round_number, 0x5EED])))


def _sample(count: int, size: int, rng: np.random.RandomState) -> list[int]:
    drawn: list[int] = rng.permutation(count)[:size].tolist()
    return drawn


@lru_cache(maxsize=16)
def participants(
    sources: tuple[str, ...],
    selection: str | int,
    senders: tuple[str, str, str],
    seed: int,
    round_number: int,
    drop: float = 0.0,
    certain: frozenset[str] = frozenset(),
) -> Participants:
    """Return the sets of round t, counted from 1.

    Parameters
    ----------
    selection
        How S_t is drawn: the value of `federation.participants`.
    senders
        Values for Σℓ, W and C, such as ``("participants", "subset", "subset")``.
    drop
        Probability that a message is lost, unless its kind is one of `certain`.
    """
    rng = np.random.RandomState([seed, round_number, 0x5EED])
    selected = _select(sources, selection, rng)
    before, sets = selected, []
    for value in senders:
        before = _choose(value, sources, selected, before, rng, round_number)
        sets.append(before)
    if not drop:
        return Participants(*sets)
    # A separate stream of random numbers: the selection does not depend on what is lost.
    arrives = np.random.RandomState([seed, round_number, 0x1057]).rand(len(sets), len(sources)) >= drop
    return Participants(
        *(
            chosen if kind in certain else chosen & frozenset(compress(sources, arrived))
            for kind, chosen, arrived in zip(Participants._fields, sets, arrives, strict=True)
        )
    )


def _select(sources: tuple[str, ...], selection: str | int, rng: np.random.RandomState) -> frozenset[str]:
    if isinstance(selection, int):
        return frozenset(sources[position] for position in _sample(len(sources), selection, rng))
    return frozenset(sources) if selection == "all" else random_subset(sources, rng)


def _choose(
    value: str,
    sources: Sequence[str],
    selected: frozenset[str],
    before: frozenset[str],
    rng: np.random.RandomState,
    round_number: int,
) -> frozenset[str]:
    match value:
        case "participants":
            return selected
        case "same":
            return before
        case "subset":
            return random_subset([source for source in sources if source in before], rng)
        case "all":
            return frozenset(sources)
        case "ordered":
            return frozenset([sources[(round_number - 1) % len(sources)]])
        case "random":
            return frozenset([sources[rng.randint(len(sources))]])
        case _:
            return frozenset()
