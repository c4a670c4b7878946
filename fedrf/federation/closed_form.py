"""W and C from the statistics of the sources, at the coordinator: one message of each source, and no training."""

from __future__ import annotations

from collections.abc import Mapping

from fedrf.config.schema import Config
from fedrf.federation.aggregate import Accepted
from fedrf.federation.state import State
from fedrf.protocol.class_statistics import ClassStatistics, Rounded, unpack
from fedrf.tca.source_statistics import choose_ridge


def store_statistics(state: State, entries: Mapping[str, Accepted], sources: tuple[str, ...]) -> None:
    """Store the statistics that sources sent; a source whose message is missing counts as arrived."""
    for name, accepted in entries.items():
        if name in sources:
            message = accepted.get(ClassStatistics.kind)
            state.statistics[name] = message if isinstance(message, ClassStatistics) else None


def class_map(config: Config, state: State, sources: tuple[str, ...]) -> Rounded | None:
    """Return what the target needs, from the sources whose statistics have arrived; None if there are none.

    It is the map from random features to class scores or, with `align.statistics=means`, the mean of the sources'
    covariances between features and classes, which the target multiplies with the inverse of its own covariance.
    """
    form, sizes = config.align.statistics, state.sizes
    messages = [message for name in sources if (message := state.statistics.get(name)) is not None]
    if not messages or sizes.features is None:
        state.ledger.record_failure("no statistics of a source arrived: the accuracy of the target is meaningless")
        return None
    statistics = [unpack(message, form, sizes.features, sizes.classes) for message in messages]
    total = sum(statistics[1:], statistics[0])
    if form == "means":
        return Rounded.of(total.class_covariance / total.num_sources)
    state.ridge = choose_ridge(statistics) if config.align.ridge == "auto" else config.align.ridge
    return Rounded.of(total.class_map(state.ridge))
