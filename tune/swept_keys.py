"""Which keys can be swept: the same for all trials, and with an effect on the method at hand."""

from __future__ import annotations

from fedrf.config.participation import is_empty
from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.methods.base import Method
from fedrf.methods.fedrf_tca import FedRFTCA

KEYS_OF_ROUNDS = {  # that have an effect in rounds only
    "align.gamma",
    "align.message",
    "align.step",
    "align.weight",
    "federation.aggregation",
    "federation.aligner_interval",
    "federation.classifier_interval",
    "model.extractor_interval",
    "train.batch_size",
    "train.label_smoothing",
    "train.lr",
    "train.optimizer",
}


def check_key(key: str, early_stopping: bool) -> None:
    """Raise `ValueError` for a key that must be the same in all trials."""
    if key.startswith(("data.", "resources.", "track.")):
        raise ValueError(f"{key} cannot be swept: all trials share their data, clients and resources")
    if early_stopping and key in ("train.rounds", "adapt.steps", "adapt.when"):
        raise ValueError(f"{key} changes the length of trials, which early stopping cannot compare; use --to-the-end")


def setting_without_effect(config: Config, key: str) -> str | None:
    """Return the setting that makes a key ineffective; None if the key has an effect."""
    align, federation = config.align, config.federation
    is_unused = is_empty(federation).mean_embedding
    no_embeddings = f"federation.embeddings_from={federation.embeddings_from}" if is_unused else None
    if key == "align.gamma" and align.statistics != "none" and align.closed_form == "rf-tca":
        return None
    if config.train.rounds == 0 and key in KEYS_OF_ROUNDS:
        return "train.rounds=0"
    if key == "align.gamma" and align.warm_start == "none":
        if type(METHODS.find(config.method)).after_average is Method.after_average:
            return f"method={config.method}"
        return "align.step=gradient" if align.step == "gradient" else no_embeddings
    if key == "align.weight" and not _has_weighted_loss(config):
        return no_embeddings
    if key in ("model.sigma", "model.num_features") and config.model.kernel == "none":
        return "model.kernel=none"
    if key == "train.extractor_lr_factor" and config.model.sharing == "frozen":
        return "model.sharing=frozen"
    if key == "federation.classifier_interval" and federation.prediction == "vote":
        return "federation.prediction=vote"
    return None


def _has_weighted_loss(config: Config) -> bool:
    """Return whether λ (`align.weight`) weights a loss of the method other than the one on mean embeddings Σℓ."""
    method = METHODS.find(config.method)
    aligns_samples = bool(method.target_trains) and not isinstance(method, FedRFTCA)
    return aligns_samples or method.pooling == "all" or ":" in config.method
