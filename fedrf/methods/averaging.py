"""Settings of the methods that average whole networks: extractor, a linear layer W and classifier, no random features.

All three are averaged over the sources every few rounds, and the target does not adapt after the last round.
"""

from __future__ import annotations

from typing import Any

NETWORK: dict[str, Any] = {
    "model.kernel": "none",
    "model.sharing": "averaged",
    "align.step": "gradient",
    "adapt.when": "never",
    "federation.together": True,
    "federation.classifier_interval": 5,
    "federation.embeddings_from": "none",
    "federation.aligners_from": "participants",
    "federation.classifiers_from": "same",
}
# The same, with messages that clients compare.
NETWORK_AND_MESSAGES: dict[str, Any] = {**NETWORK, "federation.embeddings_from": "participants"}
WEIGHTED: dict[str, Any] = {**NETWORK, "federation.aggregation": "weighted"}
BYTES = "4 * (2*K + 1) * (G + W + C) / T"
