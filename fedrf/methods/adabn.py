"""AdaBN (Li et al. 2016): FedAvg with batch normalisation for which every domain has its own statistics.

The aligned features are standardised: at a source by its batch, at the target by all its samples. Statistics inside of
a backbone stay as they are, because its outputs are computed once. The target trains nothing.

Sent: as FedAvg; statistics are not sent.
"""

from __future__ import annotations

from fedrf.methods.averaging import BYTES, WEIGHTED
from fedrf.methods.base import Method


class AdaBN(Method):
    """FedAvg with normalisation by domain."""

    name = "adabn"
    summary = "fedavg with batch normalisation by domain"
    settings = WEIGHTED
    target_trains = ()
    normalizes = True
    bytes_per_round = BYTES
