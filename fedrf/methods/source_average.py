"""One average: each source trains alone to the end, and then their networks are averaged, weighted by sample counts.

Sent: G, W and C of each source once, after the last round, and the average down to all.
"""

from __future__ import annotations

from fedrf.methods.averaging import WEIGHTED
from fedrf.methods.base import Method


class SourceAverage(Method):
    """Average of networks that were trained independently."""

    name = "source-average"
    summary = "average the sources' networks once, at the end"
    settings = {**WEIGHTED, "federation.classifier_interval": "last"}
    target_trains = ()
    bytes_per_round = "0"
