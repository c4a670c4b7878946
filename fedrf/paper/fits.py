"""Fitted exponents."""

from __future__ import annotations

import numpy as np

from fedrf.paper.outcome import Table


def exponent(table: Table, row: str) -> float:
    """Return the slope of the logarithm of a row's means over that of its columns, which are numbers."""
    points = [(float(column), mean) for column in table.columns if (mean := table.mean(row, column)) is not None]
    positions, means = np.log(np.array(points)).T
    return float(np.polyfit(positions, means, 1)[0])
