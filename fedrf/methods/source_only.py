"""No federation: each source trains alone, sends its network once at the end, and the target takes a majority vote.

The network is that of FedRF-TCA with random features, so a comparison shows the effect of alignment and adaptation.
With `--sources each` a comparison has the accuracy of each source alone.

Sent: W and C of each source, and its extractor if that is trained, once up and once down to the target.
"""

from __future__ import annotations

from fedrf.methods.base import Method


class SourceOnly(Method):
    """Majority vote of independently trained source models."""

    name = "source-only"
    summary = "majority vote of independently trained source models"
    settings = {
        "model.sharing": "frozen",
        "federation.embeddings_from": "none",
        "federation.aligners_from": "none",
        "federation.classifiers_from": "none",
        "federation.prediction": "vote",
        "adapt.when": "never",
    }
    target_trains = ()
    is_reference = True
    is_baseline = True
    bytes_per_round = "0"
