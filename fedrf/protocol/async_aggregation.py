"""How one part of the model (W, C or the extractor) is aggregated when nobody waits.

Age is counted in rounds: updates of any source since the sender fetched its model, divided by the number of sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedrf.config.schema import FederationConfig
from fedrf.protocol.aggregation import RULES, Array, flush, mix, staleness_weight


@dataclass
class AsyncPart:
    """The current aggregate of one part, which the caller keeps up to date, and what it is made from."""

    current: Array | None = None
    newest: dict[str, tuple[Array, int]] = field(default_factory=dict)
    buffer: list[tuple[Array, float]] = field(default_factory=list)

    def add(
        self,
        sender: str,
        values: Array,
        basis: int,
        age: Callable[[int], float],
        members: dict[str, float],
        settings: FederationConfig,
    ) -> Array | None:
        """Take in one client's values, grown from model version `basis`; return the new aggregate if there is one.

        `mean` and the robust rules combine the newest of every member that is not too old, with the weights that
        `members` has; `fedasync` moves towards each update as it comes; `fedbuff` waits for a full buffer.
        """
        if age(basis) > settings.max_staleness:
            return None
        discount = staleness_weight(age(basis), settings.staleness_exponent)
        if settings.aggregation == "fedasync":
            before = values if self.current is None else self.current
            return mix(before, values, settings.mixing * discount)
        if settings.aggregation == "fedbuff":
            self.buffer.append((values, discount))
            if len(self.buffer) < settings.buffer:
                return None
            full, self.buffer = self.buffer, []
            return flush(full)
        self.newest[sender] = (values, basis)
        ages = {name: age(self.newest[name][1]) for name in sorted(self.newest) if name in members}
        usable = [name for name, rounds in ages.items() if rounds <= settings.max_staleness]
        weights = [members[name] * staleness_weight(ages[name], settings.staleness_exponent) for name in usable]
        return RULES[settings.aggregation]([self.newest[name][0] for name in usable], np.array(weights))
