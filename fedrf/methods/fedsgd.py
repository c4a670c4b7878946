"""FedSGD (McMahan et al. 2017): one step of gradient descent on the average of all sources' gradients, every round.

A gradient is as large as the network, and the average of networks that each took one plain step from the same
parameters is the network after that step. So networks are sent, as in FedAvg with T = 1.

Sent every round: G, W and C of each source up, their average down to all. In async mode the average is no longer the
same as one step on the average gradient.
"""

from __future__ import annotations

from fedrf.methods.averaging import BYTES, WEIGHTED
from fedrf.methods.base import Method


class FedSGD(Method):
    """A step on the average gradient in every round."""

    name = "fedsgd"
    summary = "one gradient step on the average gradient, every round"
    settings = {**WEIGHTED, "federation.classifier_interval": 1, "train.optimizer": "sgd"}
    target_trains = ()
    bytes_per_round = BYTES
