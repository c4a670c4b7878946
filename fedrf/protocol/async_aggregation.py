"""Aggregation of one part of the model (W, C or the extractor) in async mode.

The age of a message is counted in rounds: the number of updates since its sender fetched the model, divided by the
number of sources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedrf.config.registry import AGGREGATION_RULES
from fedrf.config.schema import FederationConfig
from fedrf.protocol.aggregation import Array, combine, flush, mix, staleness_weight


@dataclass
class AsyncPart:
    """The current aggregate of one part, which the caller updates, and the messages that it is computed from."""

    current: Array | None = None
    newest: dict[str, tuple[Array, int]] = field(default_factory=dict)
    buffer: list[tuple[Array, float]] = field(default_factory=list)

    def add(
        self,
        sender: str,
        values: Array,
        version: int,
        age: Callable[[int], float],
        weights: dict[str, float],
        settings: FederationConfig,
        widths: Sequence[int] = (),
        suspect: Callable[[str], None] = lambda sender: None,
    ) -> Array | None:
        """Add one client's values, trained from model version `version`; return the new aggregate if there is one.

        Most rules combine the newest values of every member that are not too old, with the weights in `weights`. With
        `widths`, those of a network's layers, hidden neurons are matched first. `suspect` is called with each member
        that the rule leaves out.
        `fedasync` moves the aggregate towards each update; `fedbuff` waits for a full buffer.
        """
        if age(version) > settings.max_staleness:
            return None
        discount = staleness_weight(age(version), settings.staleness_exponent)
        rule = AGGREGATION_RULES.find(settings.aggregation)
        if rule.asynchronous == "mix":
            before = values if self.current is None else self.current
            return mix(before, values, settings.mixing * discount)
        if rule.asynchronous == "buffer":
            self.buffer.append((values, discount))
            if len(self.buffer) < settings.buffer:
                return None
            full, self.buffer = self.buffer, []
            return flush(full)
        self.newest[sender] = (values, version)
        ages = {name: age(self.newest[name][1]) for name in sorted(self.newest) if name in weights}
        usable = [name for name, rounds in ages.items() if rounds <= settings.max_staleness]
        discounted = [weights[name] * staleness_weight(ages[name], settings.staleness_exponent) for name in usable]
        sent = [self.newest[name][0] for name in usable]
        return combine(rule, sent, np.array(discounted), widths, lambda position: suspect(usable[position]))
