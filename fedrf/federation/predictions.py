"""The predicted class of each of the target's samples, as a table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedrf.data.partition import Integers
from fedrf.files import write_atomically


def write_predictions(
    path: Path, rows: Integers, names: Sequence[str], classes: Sequence[str], probabilities: Tensor
) -> None:
    """Write a line for each sample: its name or row, the most likely class, and its probability.

    Lines have the order of the data set: `rows` are the positions of the samples there.
    """
    order = np.argsort(rows)
    confidence, best = probabilities.cpu()[torch.from_numpy(order)].max(1)
    names = [names[position] for position in order]

    def write(draft: Path) -> None:
        # Names of files may contain any bytes, which are written unchanged.
        with draft.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            table = csv.writer(file)
            table.writerow(("sample", "predicted", "confidence"))
            for name, label, probability in zip(names, best.tolist(), confidence.tolist(), strict=True):
                table.writerow((name, classes[label], f"{probability:.4f}"))

    write_atomically(path, write)
