"""Whose messages pass in round t: S_t of algorithm 5 and the settings of the paper's tables, from the shared seed.

Everybody computes the same sets from (seed, t), so membership costs no communication. `federation.messages` has three
words, for Σℓ, W and C:

============== ==========================================================================
word           clients whose message of this kind passes
============== ==========================================================================
`participants` S_t: all sources, or a random subset (`federation.participants`)
`same`         the same as for the kind before it (for Σℓ: S_t)
`subset`       a random subset of those of the kind before it (for Σℓ: of S_t)
`all`          all sources
`ordered`      one source, each in turn
`random`       one source at random
`none`         nobody
============== ==========================================================================

Of these messages each is lost with probability `federation.drop`, on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

import numpy as np

WORDS = ("participants", "same", "subset", "all", "ordered", "random", "none")


class Membership(NamedTuple):
    """The sources whose Σℓ, W and C pass in one round."""

    mean_embedding: frozenset[str]
    aligner: frozenset[str]
    classifier: frozenset[str]


def reaches_nobody(messages: str) -> tuple[bool, ...]:
    """Tell for Σℓ, W and C whether nobody's ever passes: ``none``, or ``same`` or ``subset`` of that."""
    nobody, before = [], False
    for word in messages.split("/"):
        before = word == "none" or (before and word in ("same", "subset"))
        nobody.append(before)
    return tuple(nobody)


def random_subset(items: Sequence[str], rng: np.random.RandomState) -> frozenset[str]:
    """Draw a size uniformly from {0 … len(items)}, then so many items without replacement."""
    size = rng.randint(len(items) + 1)
    return frozenset(items[index] for index in rng.permutation(len(items))[:size])


@lru_cache(maxsize=16)
def membership(
    sources: tuple[str, ...],
    participants: str,
    messages: str,
    seed: int,
    round_number: int,
    drop: float = 0.0,
    certain: frozenset[str] = frozenset(),
) -> Membership:
    """Return the sets of round t (counted from 1) for `messages` such as ``same/subset/subset``.

    With probability `drop` a message is lost, unless its kind is a `certain` one.
    """
    rng = np.random.RandomState([seed, round_number, 0x5EED])
    chosen = frozenset(sources) if participants == "all" else random_subset(sources, rng)
    before, sets = chosen, []
    for word in messages.split("/"):
        before = _choose(word, sources, chosen, before, rng, round_number)
        sets.append(before)
    if not drop:
        return Membership(*sets)
    # From a stream of their own: who is chosen does not depend on what is lost.
    arrives = np.random.RandomState([seed, round_number, 0x1057]).rand(len(sets), len(sources)) >= drop
    return Membership(
        *(
            chosen if kind in certain else chosen & frozenset(compress(sources, came))
            for kind, chosen, came in zip(Membership._fields, sets, arrives, strict=True)
        )
    )


def _choose(
    word: str,
    sources: Sequence[str],
    participants: frozenset[str],
    before: frozenset[str],
    rng: np.random.RandomState,
    round_number: int,
) -> frozenset[str]:
    match word:
        case "participants":
            return participants
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
