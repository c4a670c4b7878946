"""FedAvg (McMahan et al. 2017): whole networks are averaged, weighted by sample counts; the target only receives.

`fedavg` is the paper's "network updated using FedAvg": extractor, a linear layer W to m features, classifier.
`fedavg-rf` has the RF-TCA module, random features and W, in between. Neither aligns anything (tables VIII and IX).

Sent every T rounds: G, W and C of each source up, their average down to all. Bytes a round:
``4 * (2*K + 1) * (G + W + C) / T``. Asynchronous: yes.
"""

from __future__ import annotations

from fedrf.methods.base import Method, classification_loss, no_loss

METHODS = (
    Method("fedavg", classification_loss, no_loss),
    Method("fedavg-rf", classification_loss, no_loss),
)
