"""FedProx (Li et al. 2020): FedAvg with a penalty on the distance of a source's parameters to the last average.

The penalty is μ/2 · |w − w̄|² with μ = `train.proximal`. It is part of the training step, so any method can have it.

Sent: as FedAvg.
"""

from __future__ import annotations

from fedrf.methods.averaging import BYTES, WEIGHTED
from fedrf.methods.base import Method


class FedProx(Method):
    """FedAvg with a proximal penalty."""

    name = "fedprox"
    summary = "fedavg with a penalty on the distance to the average"
    settings = {**WEIGHTED, "train.proximal": 0.1}
    target_trains = ()
    bytes_per_round = BYTES
