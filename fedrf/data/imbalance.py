"""Domains with unequal or missing classes, made from data sets whose classes are about equal."""

from __future__ import annotations

import numpy as np

from fedrf.data.partition import Integers
from fedrf.data.samples import Labels


def thinned(labels: Labels, num_classes: int, ratio: float, random: np.random.RandomState) -> Integers:
    """Return the sorted positions of the samples that are kept.

    Classes in random order keep a share of their samples that falls geometrically from 1 to 1 / `ratio`, at least one
    sample of each.
    """
    shares = ratio ** -np.linspace(0, 1, num_classes)[np.argsort(random.permutation(num_classes))]
    order = random.permutation(len(labels))
    # The position of each sample among those of its class, in random order.
    ranks = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = order[labels[order] == label]
        ranks[members] = np.arange(len(members))
    kept = np.maximum(1, np.rint(shares[labels] * np.bincount(labels, minlength=num_classes)[labels]))
    return np.flatnonzero(ranks < kept)


def missing_classes(position: int, count: int, num_classes: int, random: np.random.RandomState) -> Integers:
    """Return the classes that a source lacks: `count` of them, others at the next source.

    Parameters
    ----------
    position
        The position of the source among all sources.
    random
        Random state, which must be the same for all sources.
    """
    order = random.permutation(num_classes)
    return order[np.arange(position * count, (position + 1) * count) % num_classes]
