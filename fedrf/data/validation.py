"""Which samples of a source are held out, to score with."""

from __future__ import annotations

import numpy as np

from fedrf.data.partition import LEAST, Integers
from fedrf.data.samples import Labels


def hold_out(labels: Labels, share: float, random: np.random.RandomState) -> tuple[Integers, Integers]:
    """Return the sorted positions of samples to train with and of those held out, a share of each class.

    Every so many of the samples in order of their labels are held out, so that no class is off by more than one. Where
    fewer than two would be left on either side, none are.
    """
    count = len(labels)
    by_label = np.lexsort((random.permutation(count), labels))
    steps = np.floor(np.arange(count + 1) * share + random.rand())
    chosen = np.zeros(count, dtype=bool)
    chosen[by_label] = np.diff(steps) > 0
    if not LEAST <= chosen.sum() <= count - LEAST:
        chosen[:] = False
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
