"""The predicted class of each of the target's samples, as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedrf.data.partition import Integers


def predictions_table(rows: Integers, names: Sequence[str], classes: Sequence[str], probabilities: Tensor) -> bytes:
    """Return CSV with a line for each sample: its name or row, the most likely class, and its probability.

    Lines have the order of the data set: `rows` are the positions of the samples there.
    """
    order = np.argsort(rows)
    confidence, best = probabilities.cpu()[torch.from_numpy(order)].max(1)
    names = [names[position] for position in order]

    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(("sample", "predicted", "confidence"))
    for name, label, probability in zip(names, best.tolist(), confidence.tolist(), strict=True):
        table.writerow((name, classes[label], f"{probability:.4f}"))
    # Names of files may contain any bytes, which are written unchanged.
    return text.getvalue().encode("utf-8", "surrogateescape")
