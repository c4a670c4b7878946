"""FedProx (Li et al. 2020): FedAvg whose sources are pulled towards the average that came last.

The pull, μ/2 · |w − w̄|² with μ = `train.proximal`, is in the client: any method can have it.

Sent: as FedAvg. Bytes a round: ``4 * (2*K + 1) * (G + W + C) / T``. Asynchronous: yes.
"""

from __future__ import annotations

from fedrf.methods.base import Method, classification_loss, no_loss

METHODS = (Method("fedprox", classification_loss, no_loss),)
