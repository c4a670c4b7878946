"""FedAvg (McMahan et al. 2017): whole networks are averaged, weighted by sample counts; the target only receives.

`fedavg` is the paper's "network updated using FedAvg": extractor, a linear layer W to m features, classifier.
`fedavg-rf` has the RF-TCA module, random features and W, in between. Neither aligns the domains (tables VIII and IX).

Sent every T rounds: G, W and C of each source up, their average down to all.
"""

from __future__ import annotations

from fedrf.methods.averaging import BYTES, WEIGHTED
from fedrf.methods.base import Method


class FedAvg(Method):
    """Average of networks without random features."""

    name = "fedavg"
    summary = "average whole networks; no alignment"
    settings = WEIGHTED
    target_trains = ()
    is_reference = True
    bytes_per_round = BYTES


class FedAvgRF(FedAvg):
    """Average of networks with random features."""

    name = "fedavg-rf"
    summary = "fedavg with random features and an aligner in the network"
    settings = {**WEIGHTED, "model.kernel": "gaussian"}
    is_reference = False
