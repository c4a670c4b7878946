"""FedAvg (McMahan et al. 2017): the sources' whole networks are averaged each round; the target only receives.

The network is the same as for FedRF-TCA, random features included, so that tables compare protocols and not networks.

Sent in a round: extractor, W and C of each source up, their average down to all.
"""

from __future__ import annotations

from fedrf.methods.base import Method, classification_loss, no_loss

METHOD = Method("fedavg", classification_loss, no_loss)
