"""What each method, and each kind of data, sets differently from the defaults of `fedrf.config`.

Apart from `fedrf.methods`, which has the losses and imports torch: the command line and the driver read these alone.
"""

from __future__ import annotations

from typing import Any

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
    },
    "fedavg": {
        "model.sharing": "averaged",
        "model.extractor_interval": 1,
        "federation.messages": "none/participants/same",
        "federation.aggregation": "weighted",
        "adapt.when": "never",
    },
    "source-only": {
        "federation.messages": "none/none/none",
        "federation.prediction": "vote",
        "adapt.when": "never",
    },
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
