"""Parts of single sources, which the target receives for a majority vote or if the method shows them."""

from __future__ import annotations

from collections.abc import Mapping

from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.federation.aggregate import Accepted
from fedrf.federation.state import State
from fedrf.protocol.aggregation import Array
from fedrf.protocol.messages import PARTS


def store_source_models(state: State, entries: Mapping[str, Accepted], sources: tuple[str, ...]) -> None:
    """Store the parts that sources sent."""
    for name, accepted in entries.items():
        parts = {part: message.values for part, message in accepted.items() if part in PARTS}
        if name in sources and parts:
            state.source_models[name] = {**state.source_models.get(name, {}), **parts}


def complete_source_models(config: Config, state: State, sources: tuple[str, ...]) -> dict[str, dict[str, Array]]:
    """Return the parts of each source; if the method uses them as networks, of sources without a missing part."""
    needed = {"aligner", "classifier"} | ({"extractor"} if config.model.sharing == "averaged" else set())
    needed = needed if METHODS.find(config.method).shows_sources else set()
    stored = {name: state.source_models[name] for name in sources if name in state.source_models}
    return {name: parts for name, parts in stored.items() if needed <= parts.keys()}
