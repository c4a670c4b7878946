"""What each method, and each kind of data, sets differently from the defaults of `fedrf.config.schema`.

Apart from `fedrf.methods`, which has the losses and imports torch: the command line and the driver read these alone.
"""

from __future__ import annotations

from typing import Any

# The network of all methods but ours: the extractor's features, W and C, all three averaged over the sources every few
# steps, and nothing that the target does by itself.
NETWORK: dict[str, Any] = {
    "model.kernel": "none",
    "model.sharing": "averaged",
    "align.step": "gradient",
    "adapt.when": "never",
    "federation.together": True,
    "federation.classifier_interval": 5,
    "federation.messages": "none/participants/same",
}
BATCHES = {**NETWORK, "align.message": "samples", "federation.messages": "same/same/same"}
SHOWN = {"federation.mode": "sync", "federation.shows": "each"}

PRESETS: dict[str, dict[str, Any]] = {
    "fedrf-plus": {},
    "fedrf-tca": {
        "align.message": "batch",
        "align.step": "gradient",
        "model.sharing": "local",
        "model.classifier": "mlp",
        "adapt.when": "never",
        "adapt.pseudo_labels": 0.0,
        "adapt.views": "aligned",
        "adapt.consistency": 0.0,
        "train.label_smoothing": 0.0,
        "federation.aligner_interval": 1,
    },
    "source-only": {
        "federation.messages": "none/none/none",
        "federation.prediction": "vote",
        "adapt.when": "never",
    },
    "source-average": {**NETWORK, "federation.aggregation": "weighted", "federation.classifier_interval": "last"},
    "fedavg": {**NETWORK, "federation.aggregation": "weighted"},
    "fedavg-rf": {**NETWORK, "model.kernel": "gaussian", "federation.aggregation": "weighted"},
    "fedsgd": {
        **NETWORK,
        "federation.classifier_interval": 1,
        "federation.aggregation": "weighted",
        "train.optimizer": "sgd",
    },
    "fedprox": {**NETWORK, "federation.aggregation": "weighted", "train.proximal": 0.1},
    "adabn": {**NETWORK, "federation.aggregation": "weighted", "model.normalization": "batch"},
    "autodial": {**BATCHES, "model.normalization": "batch", "align.message": "moments", "align.weight": 0.1},
    "f-dan": BATCHES,
    "f-dann": BATCHES,
    "fade-dann": NETWORK,
    "fade-cdan": NETWORK,
    "fada": {**BATCHES, **SHOWN, "federation.aggregation": "chosen"},
    "fedka": {**BATCHES, **SHOWN},
    "fda": {**BATCHES, "federation.mode": "sync", "federation.encryption": "counted"},
    "kd3a": {
        **BATCHES,
        **SHOWN,
        "align.message": "moments",
        "federation.aggregation": "chosen",
        "train.label_smoothing": 0.0,  # with it nobody is sure
    },
    "pooled": {**NETWORK, "data.pooled": "sources"},
    "pooled-dann": {**NETWORK, "data.pooled": "all"},
    "pooled-cdan": {**NETWORK, "data.pooled": "all"},
    "target-oracle": {**NETWORK, "data.pooled": "oracle"},
}

# Which parts the target trains in the rounds, with plain steps, and sends, where it does not follow from `align.step`.
ALIGNING = ("fedrf-plus", "fedrf-tca")  # where it does
FEATURES_OF_TARGET = ("aligner", "extractor")
TARGET_TRAINS: dict[str, tuple[str, ...]] = {
    "f-dan": FEATURES_OF_TARGET,
    "f-dann": FEATURES_OF_TARGET,
    "fade-dann": FEATURES_OF_TARGET,
    "fade-cdan": FEATURES_OF_TARGET,
    "fada": FEATURES_OF_TARGET,
    "fda": FEATURES_OF_TARGET,
    "autodial": (*FEATURES_OF_TARGET, "classifier"),
    "fedka": (*FEATURES_OF_TARGET, "classifier"),
    "kd3a": (*FEATURES_OF_TARGET, "classifier"),
}

# What people bring along themselves; data sets that are rows of features, and those that are image files.
OWN = ("folder", "features")
FEATURES = (
    "features",
    "office31-decaf6",
    "office31-surf",
    "office-caltech10-decaf6",
    "office-caltech10-surf",
)
PHOTOGRAPHS = ("folder", "office31", "office-caltech10", "office-home", "domainnet", "visda-c")
DATA_PRESETS: dict[str, dict[str, Any]] = {
    **{name: {"model.extractor": "identity"} for name in FEATURES},
    **{name: {"model.extractor": "efficientnet-lite0-plus"} for name in PHOTOGRAPHS},
    **{
        name: {"model.extractor": "efficientnet-lite0-small", "adapt.consistency": 1.0}
        for name in ("digit-five", "digit-four")
    },
}
