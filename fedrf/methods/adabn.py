"""AdaBN (Li et al. 2016): FedAvg with batch normalisation of which every domain has its own statistics.

The aligned features are standardised, at a source by its batch, at the target by all its samples. Statistics inside of
a backbone stay as they are: its outputs are computed once. The target trains nothing.

Sent: as FedAvg; statistics stay at home. Bytes a round: ``4 * (2*K + 1) * (G + W + C) / T``. Asynchronous: yes.
"""

from __future__ import annotations

from fedrf.methods.base import Method, classification_loss, no_loss

METHODS = (Method("adabn", classification_loss, no_loss),)
