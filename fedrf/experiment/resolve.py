"""A configuration that means the same in every process, checked before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedrf.config.loader import load_config
from fedrf.config.registry import EXTRACTORS, METHODS, SCORES
from fedrf.config.schema import WEIGHTS, Config, ModelConfig
from fedrf.data.domains import clients_of, locate_all, resolve_data
from fedrf.data.preflight import check_clients
from fedrf.experiment.tracking import check_tracking
from fedrf.store import usable_folder_at


def resolve_config(
    recipe: str | Path | None, overrides: Mapping[str, Any] | Iterable[str] = (), *, seed: int | None = None
) -> Config:
    """Load a configuration and replace defaults that depend on this machine by their values."""
    config = load_config(recipe, overrides)
    config = config if seed is None else load_config(None, config.model_dump(mode="json") | {"seed": seed})
    config = config.model_copy(update={"data": resolve_data(config.data), "model": _absolute_weights(config.model)})
    _check_client_names(config)
    check_tracking(config)
    if config.track.storage:
        usable_folder_at(config.track.storage)
    return config


def check_files(config: Config) -> None:
    """Check the files of a run on this machine, and the samples of all clients; on a cluster only clients can."""
    locate_all(config.data)
    check_clients(config)
    if config.model.weights not in WEIGHTS and not Path(config.model.weights).is_file():
        raise ValueError(f"model.weights={config.model.weights}: no such file; allowed too: {', '.join(WEIGHTS)}")


def warnings_about(config: Config) -> list[str]:
    """Return warnings about suspicious settings."""
    warnings, select = [], config.track.select
    if config.model.weights == "none" and EXTRACTORS.find(config.model.extractor).has_weights:
        warnings.append(f"model.weights=none: {config.model.extractor} has random weights, and its features say little")
    if SCORES.find(select).caution:
        warnings.append(f"track.select={select}: {SCORES.find(select).caution}")
    if (setting := _batch_messages(config)) and not config.federation.private_batches:
        warnings.append(
            f"{setting}: messages are about batches that the seed determines, so the coordinator can compute features "
            "of single samples; real sites need federation.private_batches=true (SECURITY.md)"
        )
    return warnings


def _batch_messages(config: Config) -> str:
    """Return the setting because of which clients send something about each batch; empty if they do not."""
    method = METHODS.find(config.method)
    if not config.train.rounds or config.federation.embeddings_from == "none" or method.pooling != "none":
        return ""
    if method.message.kind != "mean_embedding":
        return f"method={config.method}"
    return "" if config.align.message == "exact" else f"align.message={config.align.message}"


def _absolute_weights(model: ModelConfig) -> ModelConfig:
    """Make the path of a weights file absolute, for processes with another working directory."""
    is_file = model.weights not in WEIGHTS
    return model.model_copy(update={"weights": str(Path(model.weights).expanduser().absolute())}) if is_file else model


def _check_client_names(config: Config) -> None:
    sources, target = clients_of(config)
    clients = (*sources, target)
    for key, named in (("federation.delays", config.federation.delays), ("resources.nodes", config.resources.nodes)):
        unknown = sorted(set(named) - set(clients))
        if unknown:
            raise ValueError(f"{key} names {', '.join(unknown)}; the clients are {', '.join(clients)}")
    size = config.federation.participants
    if isinstance(size, int) and size > len(sources):
        raise ValueError(f"federation.participants={size}: there are {len(sources)} sources; allowed: at most as many")
