"""FedSGD (McMahan et al. 2017): one step of gradient descent on the average of all sources' gradients, every round.

A gradient is as large as the network, and the average of networks that each took one plain step from the same place is
the network after that step; so networks are sent, as in FedAvg with T = 1.

Sent every round: G, W and C of each source up, their average down to all. Bytes a round:
``4 * (2*K + 1) * (G + W + C) / T``. Asynchronous: yes, and then no longer the same as a step on the average.
"""

from __future__ import annotations

from fedrf.methods.base import Method, classification_loss, no_loss

METHODS = (Method("fedsgd", classification_loss, no_loss),)
