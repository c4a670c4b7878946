"""The coordinator's part of the closed form for W and C: statistics of the sources are stored and combined."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedrf.config.schema import Config
from fedrf.federation.aggregate import Accepted
from fedrf.federation.state import State
from fedrf.protocol.class_statistics import ClassStatistics, factored, integers_of, unpack
from fedrf.protocol.messages import MeanEmbedding
from fedrf.protocol.quantized import Quantized
from fedrf.tca.aligned_map import aligned_class_map
from fedrf.tca.consistency import bounded_weights, suspects
from fedrf.tca.source_statistics import choose_ridge, source_weights, total_of


def store_statistics(state: State, entries: Mapping[str, Accepted], sources: tuple[str, ...]) -> None:
    """Store Σℓ and statistics of clients; a source whose message is missing counts as arrived."""
    for name, accepted in entries.items():
        if (embedding := accepted.get(MeanEmbedding.kind)) is not None:
            state.mean_embeddings[name] = embedding.values
        message = accepted.get(ClassStatistics.kind)
        if name in sources or message is not None:
            state.statistics[name] = message if isinstance(message, ClassStatistics) else None


def solve(config: Config, state: State, sources: tuple[str, ...], target: str) -> None:
    """Compute the map from random features to class scores that the target receives, and count its bytes."""
    state.class_map = class_map(config, state, sources, target)
    state.ledger.count_bytes("down", "class_map", state.class_map.nbytes)


def consistent_sources(state: State, sources: tuple[str, ...]) -> list[str]:
    """Return the sources whose statistics arrived and do not contradict most others; record who is left out."""
    embeddings, messages = state.mean_embeddings, state.statistics
    arrived = {name: factored(message) for name in sources if (message := messages.get(name)) and name in embeddings}
    left_out = suspects(arrived, embeddings)
    for name, reason in left_out.items():
        state.ledger.suspect(name, reason)
    return [name for name in arrived if name not in left_out]


def _refusals(state: State) -> str:
    """Return why messages were not used."""
    return "; ".join(state.ledger.failures[-3:]) or "nothing arrived"


def class_map(config: Config, state: State, sources: tuple[str, ...], target: str) -> Quantized:
    """Return the map from random features to class scores; a `ValueError` if what it needs has not arrived."""
    align, embeddings = config.align, state.mean_embeddings
    arrived = consistent_sources(state, sources)
    aligned_with = (target,) if align.closed_form == "rf-tca" else ()
    if not arrived:
        raise ValueError(f"the statistics of no source could be used: {_refusals(state)}")
    if target not in embeddings or not all(state.statistics.get(name) for name in aligned_with):
        raise ValueError(f"what {target} sent with the statistics could not be used: {_refusals(state)}")
    discrepancies = np.stack([embeddings[name] - embeddings[target] for name in arrived], axis=1)
    messages = [message for name in (*arrived, *aligned_with) if (message := state.statistics[name])]
    unpacked, basis = unpack(messages, discrepancies)
    statistics = unpacked[: len(arrived)]
    weights = source_weights(discrepancies) if align.source_weights == "distance" else [1.0] * len(arrived)
    weights = bounded_weights(weights, [source.class_covariance for source in statistics])
    state.source_weights = dict(zip(arrived, weights, strict=True))
    state.ridge = choose_ridge(statistics, weights) if align.ridge == "auto" else align.ridge
    total = total_of([weight * source for weight, source in zip(weights, statistics, strict=True)])
    if aligned_with:
        inside = basis.T @ discrepancies
        solution = aligned_class_map(total, unpacked[-1], inside, align.gamma, config.model.dim, state.ridge)
    else:
        solution = total.class_map(state.ridge)
    return Quantized.of(basis @ solution, integers_of(align.statistics))
