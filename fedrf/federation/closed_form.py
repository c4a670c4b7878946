"""W and C from the statistics of the sources, at the coordinator: one message of each source, and no training."""

from __future__ import annotations

from collections.abc import Mapping

from fedrf.config.schema import Config
from fedrf.federation.aggregate import Accepted
from fedrf.federation.state import State
from fedrf.protocol.class_statistics import ClassStatistics, integers_of, unpack
from fedrf.protocol.messages import MeanEmbedding
from fedrf.protocol.quantized import Quantized
from fedrf.tca.source_statistics import choose_ridge, source_weights, total_of


def store_statistics(state: State, entries: Mapping[str, Accepted], sources: tuple[str, ...]) -> None:
    """Store Σℓ of all clients, and the statistics of sources; a source whose message is missing counts as arrived."""
    for name, accepted in entries.items():
        if (embedding := accepted.get(MeanEmbedding.kind)) is not None:
            state.mean_embeddings[name] = embedding.values
        if name in sources:
            message = accepted.get(ClassStatistics.kind)
            state.statistics[name] = message if isinstance(message, ClassStatistics) else None


def class_map(config: Config, state: State, sources: tuple[str, ...], target: str) -> Quantized | None:
    """Return the map from random features to class scores; None if no statistics of a source have arrived."""
    messages = [message for name in sources if (message := state.statistics.get(name)) is not None]
    if not messages:
        state.ledger.record_failure("no statistics of a source arrived: the accuracy of the target is meaningless")
        return None
    statistics, basis = unpack(messages)
    weights = _weights(config, state, [message.sender for message in messages], target)
    state.source_weights = {message.sender: weight for message, weight in zip(messages, weights, strict=True)}
    state.ridge = choose_ridge(statistics, weights) if config.align.ridge == "auto" else config.align.ridge
    total = total_of([weight * source for weight, source in zip(weights, statistics, strict=True)])
    return Quantized.of(basis @ total.class_map(state.ridge), integers_of(config.align.statistics))


def _weights(config: Config, state: State, sources: list[str], target: str) -> list[float]:
    """Return the weights of sources; they are equal if a Σℓ is missing."""
    embeddings = state.mean_embeddings
    if config.align.source_weights == "equal" or not {target, *sources} <= set(embeddings):
        return [1.0] * len(sources)
    return source_weights([embeddings[name] for name in sources], embeddings[target])
