"""The predicted class of each of the target's samples, as a table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from fedrf.files import write_atomically


def write_predictions(path: Path, names: Sequence[str], classes: Sequence[str], probabilities: Tensor) -> None:
    """Write a line for each sample: its name or row, the most likely class, and its probability."""
    confidence, best = probabilities.cpu().max(1)

    def write(draft: Path) -> None:
        # Names of files may contain any bytes, which are written unchanged.
        with draft.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            table = csv.writer(file)
            table.writerow(("sample", "predicted", "confidence"))
            for name, label, probability in zip(names, best.tolist(), confidence.tolist(), strict=True):
                table.writerow((name, classes[label], f"{probability:.4f}"))

    write_atomically(path, write)
