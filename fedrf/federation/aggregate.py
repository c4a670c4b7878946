"""What the federation has in common: the newest Σℓ of each client, and the aggregate of W, C and the extractors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from fedrf.config.participation import Membership
from fedrf.config.schema import Config
from fedrf.protocol.aggregation import RULES, Array
from fedrf.protocol.async_aggregation import AsyncPart
from fedrf.protocol.messages import RELAYED, Message

PARTS = ("aligner", "classifier", "extractor", "companion")
Accepted = dict[str, Message]


def relayed(accepted: Accepted) -> Message | None:
    """Return the message of a client that goes on to its peers, if there is one."""
    return next((accepted[kind] for kind in RELAYED if kind in accepted), None)


@dataclass
class SharedModel:
    """Grows by whole rounds (sync) or by one client's messages at a time (async).

    Attributes
    ----------
    current
        The aggregate of each part.
    embeddings
        The newest Σℓ of each client, with the version of the model that its sender had.
    version
        How many updates the model has seen; only counted in async mode.
    counts
        Samples of each client, where the rule weighs by them.
    chosen
        What the target last said that each client should count, where the rule is that.
    changes
        How often each part has changed.
    """

    config: Config
    sources: tuple[str, ...]
    target: str
    current: dict[str, Array] = field(default_factory=dict)
    embeddings: dict[str, tuple[Message, int]] = field(default_factory=dict)
    blends: dict[str, AsyncPart] = field(default_factory=lambda: {kind: AsyncPart() for kind in PARTS})
    version: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    chosen: dict[str, float] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)

    def begin_with(self, aligner: Array) -> None:
        """Start from a given W, so that a client that comes later does too."""
        self.current["aligner"] = aligner
        self.changes["aligner"] += 1

    def combine(self, entries: dict[str, Accepted]) -> set[str]:
        """Aggregate each part over all clients that sent it, in the order of the clients; return what there was."""
        combined = set()
        if said := entries.get(self.target, {}).get("weights"):
            self.chosen = dict(zip((*self.sources, self.target), map(float, said.values), strict=True))
        for kind in PARTS:
            senders = [name for name in (*self.sources, self.target) if kind in entries.get(name, {})]
            if senders:
                weights = np.array(list(self._weights(senders, kind).values()), dtype=np.float64)
                weights = weights if weights.any() else np.ones_like(weights)  # of those who count, none is here
                rule = RULES[self.config.federation.aggregation]
                self._set(kind, rule([entries[name][kind].values for name in senders], weights), set(self.sources))
                combined.add(kind)
        return combined

    def post(self, entries: dict[str, Accepted]) -> None:
        """Replace all embeddings by those of a new round."""
        self.embeddings = {
            name: (message, self.version) for name, accepted in entries.items() if (message := relayed(accepted))
        }

    def blend(self, sender: str, accepted: Accepted, version: int, members: Membership) -> None:
        """Take in one client's messages, grown from `version` of the model in a round with these members."""
        if message := relayed(accepted):
            self.embeddings[sender] = (message, version)
        for kind in PARTS:
            if kind in accepted:
                chosen = members.classifier if kind == "classifier" else members.aligner
                names = [name for name in self.sources if name in chosen or name == sender]
                weights = self._weights((*names, self.target), kind)
                part = self.blends[kind]
                values = part.add(sender, accepted[kind].values, version, self.age, weights, self.config.federation)
                if values is not None:
                    self._set(kind, values, members.mean_embedding)
                    part.current = self.current[kind]
        if sender in self.sources:
            self.version += 1

    def age(self, version: int) -> float:
        """Return the rounds that passed since a version of the model: updates divided by sources."""
        return (self.version - version) / len(self.sources)

    def peers(self, receiver: str, members: frozenset[str]) -> tuple[Message, ...]:
        """Return Σℓ that a client may see: those of a round's members at the target, the target's at a source."""
        fresh = self._fresh()
        names = [name for name in self.sources if name in members] if receiver == self.target else [self.target]
        return tuple(fresh[name] for name in names if name in fresh)

    def _fresh(self) -> dict[str, Message]:
        limit = self.config.federation.max_staleness
        return {name: message for name, (message, version) in self.embeddings.items() if self.age(version) <= limit}

    def _weights(self, names: Sequence[str], kind: str) -> dict[str, float]:
        """Return how much each of these clients counts."""
        given: dict[str, Mapping[str, float]] = {"weighted": self.counts, "chosen": self.chosen}
        by_rule = given.get(self.config.federation.aggregation, {})
        weights = {name: by_rule.get(name, 1.0) for name in names}
        if kind == "companion" and self.target in weights and len(weights) > 1:
            # What tells domains apart must hear both sides alike.
            weights[self.target] = sum(weight for name, weight in weights.items() if name != self.target)
        return weights

    def _set(self, kind: str, values: Array, members: Set[str]) -> None:
        if kind == "aligner" and self.config.align.step == "proximal":
            values = self._after_proximal_step(values, members)
        self.current[kind] = values
        self.changes[kind] += 1

    def _after_proximal_step(self, aligner: Array, members: Set[str]) -> Array:
        """Return W after the closed-form step against the discrepancies of all members whose Σℓ is at hand."""
        fresh = self._fresh()
        sources = [name for name in self.sources if name in fresh and name in members]
        if self.target not in fresh or not sources:
            return aligner
        # Imported here: a coordinator that only averages starts seconds sooner without torch.
        import torch

        from fedrf.tca.mmd import proximal_step

        columns = np.stack([fresh[name].values - fresh[self.target].values for name in sources], axis=1)
        return proximal_step(torch.tensor(aligner), torch.from_numpy(columns), self.config.align.gamma).numpy()
