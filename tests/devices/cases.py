"""Small federations that together run every line that handles tensors, for `run_cases`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from fedrf.config.registry import METHODS

ROUNDS, STEPS = 4, 4
SMALL = {
    "data.samples": 60,
    "model.num_features": 20,
    "model.dim": 8,
    "train.rounds": ROUNDS,
    "train.batch_size": 16,
    "adapt.steps": STEPS,
    "adapt.batch_size": 32,
    "track.evaluate_every": 100,
    "federation.mode": "sync",
    "federation.checkpoint_seconds": 1e9,
}
PLUS, ONESHOT = {"method": "fedrf-plus"}, {"method": "fedrf-oneshot"}
ASYNC = {"federation.mode": "async"}
SAVED = {"federation.checkpoint_seconds": 0}
SCORED = {"data.validation": 0.3, "track.evaluate_every": 2}
IMAGES = {**PLUS, "model.weights": "none", "data.name": "folder", "data.target": "home", "train.rounds": 2}

RUNS = {
    **{f"method {name}": {"method": name} for name in METHODS.built_in},
    "warm start by statistics": {**PLUS, "align.warm_start": "statistics"},
    "warm start by products": {**PLUS, "align.warm_start": "subspace"},
    "joint adaptation": {**PLUS, "adapt.when": "joint"},
    "vote": {"method": "fedrf-tca", "federation.prediction": "vote"},
    "half precision": {**PLUS, "train.precision": "16-mixed"},
    "half precision, two optimisers": {"method": "f-dann", "train.precision": "16-mixed"},
    "short floats": {**PLUS, "train.precision": "bf16-mixed"},
    "asynchronous": {**PLUS, **ASYNC},
    "proximal": {**PLUS, "train.proximal": 0.1},
    "adapted statistics": {**ONESHOT, "adapt.when": "last", "adapt.shares": "estimated", "adapt.pseudo_labels": 0.3},
    "class means": {**ONESHOT, "align.statistics": "means"},
    "second moments": {**ONESHOT, "align.statistics": "gram"},
    "aligned statistics": {**ONESHOT, "align.closed_form": "rf-tca"},
    "running means": {**PLUS, "align.message": "running"},
    "no random features": {"method": "f-dan", "model.kernel": "none"},
    "scores by density ratios": {**PLUS, **SCORED, "track.select": "dev"},
    "scores by clusters": {**PLUS, "track.evaluate_every": 2, "track.select": "classami"},
    "scores by mixtures": {**PLUS, "track.evaluate_every": 2, "track.select": "mixval"},
    "learned features": {**PLUS, "data.name": "features", "data.target": "t", "model.extractor": "mlp"},
    "given features": {**PLUS, "data.name": "features", "data.target": "t", "model.extractor": "identity"},
    "learned images": {**PLUS, "model.extractor": "cnn"},
}
WITHOUT_FLOAT64 = {
    name: RUNS[name]
    for name in (
        "method fedrf-oneshot",
        "method fedrf-plus",
        "method autodial",
        "method fada",
        "aligned statistics",
        "warm start by statistics",
        "warm start by products",
        "scores by density ratios",
        "learned features",
    )
}
# In which step of the target it fails; then it is continued.
RESUMED = {
    f"{mode} run that fails in {phase}": ({**PLUS, **SAVED, "federation.mode": mode, **more}, step)
    for mode in ("sync", "async")
    for phase, step, more in (
        ("the rounds", 3, {"train.proximal": 0.1}),
        ("adaptation", ROUNDS + 3, {}),
        ("joint adaptation", 3, {"adapt.when": "joint"}),
    )
} | {
    "run with source models that fails": ({"method": "kd3a", **SAVED}, 3),
    "run in half precision that fails": ({**PLUS, **SAVED, "train.precision": "16-mixed"}, 3),
}
BACKBONES = {
    f"{extractor}, {sharing}, cache {cache}": IMAGES
    | {"model.extractor": extractor, "model.sharing": sharing, "model.cache": cache}
    for extractor, sharing in (
        ("efficientnet-lite0", "frozen"),
        ("efficientnet-lite0-small", "averaged"),
        ("resnet18", "averaged"),
    )
    for cache in ("disk", "memory", "off")
} | {"warped maps": IMAGES | {"model.extractor": "efficientnet-lite0-small", "adapt.consistency": 1.0}}
POOLED = [f"method {name}" for name in METHODS.built_in if METHODS.find(name).pooling == "all"]
STORED = [name for name in BACKBONES if name.endswith(("cache disk", "cache memory"))]


def write_features(root: Path) -> Path:
    """Write three domains of four classes as rows of features."""
    random = np.random.RandomState(0)
    for name in ("a", "b", "t"):
        labels = np.arange(48) % 4
        rows = 2 * np.eye(4)[labels] @ random.randn(4, 10) + random.randn(48, 10)
        save_file({"features": rows, "labels": labels}, root / f"{name}.safetensors")
    return root


def settings(keys, folders) -> dict[str, object]:
    """Return the settings of a case, with the folder of its data if it needs one."""
    name = keys.get("data.name", "digits")
    where = {"data.root": str(folders[name])} if name in folders else {}
    return {**SMALL, **where, **keys}


def make_folders() -> dict[str, Path]:
    """Write small data sets of features and images."""
    from tests.experiment.conftest import write_images

    root = Path(tempfile.mkdtemp(prefix="devices-"))
    (root / "features").mkdir()
    return {"features": write_features(root / "features"), "folder": write_images(root / "images", 3), "root": root}
