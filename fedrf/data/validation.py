"""Select the samples of a source that are held out from training, for scoring."""

from __future__ import annotations

import numpy as np

from fedrf.data.partition import MIN_SAMPLES, Integers
from fedrf.data.samples import Labels


def hold_out(labels: Labels, share: float, random: np.random.RandomState) -> tuple[Integers, Integers]:
    """Return the sorted positions of training samples and of held-out samples, a share of each class.

    Samples are sorted by label and held out at regular intervals, so that each class has its share up to one sample. If
    fewer than `MIN_SAMPLES` would be left on either side, no sample is held out.
    """
    count = len(labels)
    by_label = np.lexsort((random.permutation(count), labels))
    steps = np.floor(np.arange(count + 1) * share + random.rand())
    chosen = np.zeros(count, dtype=bool)
    chosen[by_label] = np.diff(steps) > 0
    if not MIN_SAMPLES <= chosen.sum() <= count - MIN_SAMPLES:
        chosen[:] = False
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
