"""What the clients of a federation share: the newest Σℓ of each client, and the averages of W, C and extractors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Protocol

import numpy as np

from fedrf.config.participation import Participants
from fedrf.config.registry import AGGREGATION_RULES, METHODS
from fedrf.config.schema import Config
from fedrf.protocol.aggregation import Array, combine
from fedrf.protocol.async_aggregation import AsyncPart
from fedrf.protocol.compression import codec_of
from fedrf.protocol.message import ArrayMessage
from fedrf.protocol.messages import PARTS
from fedrf.protocol.published import Published
from fedrf.protocol.sizes import classifier_widths

Accepted = dict[str, ArrayMessage]
FIXED = ("config", "sources", "target")  # what a checkpoint does not keep


class Suspect(Protocol):
    """Gets a client whose message is left out, and why."""

    def __call__(self, sender: str, reason: str) -> None:
        """Record it."""


def far_from_others(part: str) -> str:
    """Return why an aggregation rule leaves a client out."""
    return f"its {part} is far from those of most clients"


def relayed(accepted: Accepted) -> ArrayMessage | None:
    """Return the message of a client that is passed on to its peers, if there is one."""
    return next((message for message in accepted.values() if message.is_relayed), None)


@dataclass
class Aggregate:
    """Is updated by all messages of a round at once (sync) or by those of one client at a time (async).

    Attributes
    ----------
    current
        The average of each part.
    embeddings
        The newest Σℓ of each client, with the version of the model that its sender had.
    async_parts
        Async mode: what the average of each part is computed from.
    version
        Async mode: the number of updates by sources.
    counts
        Number of samples of each client, for rules that weigh by it.
    chosen
        Weights of the clients that the target sent last, for rules that use them.
    changes
        How often each part has changed.
    published
        If parts are compressed: what clients get and hold of each part.
    """

    config: Config
    sources: tuple[str, ...]
    target: str
    current: dict[str, Array] = field(default_factory=dict)
    embeddings: dict[str, tuple[ArrayMessage, int]] = field(default_factory=dict)
    async_parts: dict[str, AsyncPart] = field(default_factory=lambda: {part: AsyncPart() for part in PARTS})
    version: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    chosen: dict[str, float] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)
    published: dict[str, Published] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in FIXED}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        for name, value in state.items():
            setattr(self, name, value)

    @property
    def _clients(self) -> tuple[str, ...]:
        return (*self.sources, self.target)

    def start_from(self, aligner: Array) -> None:
        """Start from a given W, also for clients that join later."""
        _check_finite("aligner", aligner)
        self._hand_out("aligner", aligner)

    def combine(self, entries: dict[str, Accepted], suspect: Suspect) -> set[str]:
        """Average each part over all clients that sent it, in the order of the clients; return these parts."""
        if weights := entries.get(self.target, {}).get("weights"):
            self.chosen = dict(zip(self._clients, map(float, weights.values), strict=True))
        combined = set()
        for part in PARTS:
            sent = {name: entries[name][part].values for name in self._clients if part in entries.get(name, {})}
            if sent:
                self._set(part, self._average(part, sent, suspect), set(self.sources), sent)
                combined.add(part)
        return combined

    def _average(self, part: str, sent: Mapping[str, Array], suspect: Suspect) -> Array:
        rule, names = AGGREGATION_RULES.find(self.config.federation.aggregation), list(sent)
        shares = np.array(list(self._weights(names, part).values()), dtype=np.float64)
        shares = shares if shares.any() else np.ones_like(shares)  # all clients with a weight are missing
        widths, reason = self._matched_widths(part), far_from_others(part)
        return combine(rule, list(sent.values()), shares, widths, lambda position: suspect(names[position], reason))

    def replace_embeddings(self, entries: dict[str, Accepted]) -> None:
        """Replace all Σℓ by those of a new round."""
        self.embeddings = {
            name: (message, self.version) for name, accepted in entries.items() if (message := relayed(accepted))
        }

    def add(self, sender: str, accepted: Accepted, version: int, chosen: Participants, suspect: Suspect) -> None:
        """Add the messages of one client, trained from `version` of the model in a round with these participants."""
        if message := relayed(accepted):
            self.embeddings[sender] = (message, version)
        for part in PARTS:
            if part in accepted:
                members = chosen.classifier if part == "classifier" else chosen.aligner
                names = [name for name in self.sources if name in members or name == sender]
                weights, async_part = self._weights((*names, self.target), part), self.async_parts[part]
                values, widths = accepted[part].values, self._matched_widths(part)
                settings, leave_out = self.config.federation, partial(suspect, reason=far_from_others(part))
                average = async_part.add(sender, values, version, self.age, weights, settings, widths, leave_out)
                if average is not None:
                    self._set(part, average, chosen.mean_embedding)
                    async_part.current = self.current[part]
        if sender in self.sources:
            self.version += 1

    def note_held(self, client: str, held: Mapping[str, int]) -> None:
        """Note which averages a client says that it holds, by part."""
        for part, published in self.published.items():
            published.note_held(client, held.get(part, 0))

    def age(self, version: int) -> float:
        """Return the rounds since a version of the model: updates divided by the number of sources."""
        return (self.version - version) / len(self.sources)

    def peers(self, receiver: str, members: Set[str]) -> tuple[ArrayMessage, ...]:
        """Return the Σℓ for a client: those of a round's participants for the target, the target's for a source."""
        names = [name for name in self.sources if name in members] if receiver == self.target else [self.target]
        return tuple(self._fresh(names).values())

    def _fresh(self, names: Iterable[str]) -> dict[str, ArrayMessage]:
        """Return the Σℓ of these clients that are not too old."""
        limit, stored = self.config.federation.max_staleness, self.embeddings
        return {name: stored[name][0] for name in names if name in stored and self.age(stored[name][1]) <= limit}

    def _weights(self, names: Sequence[str], part: str) -> dict[str, float]:
        """Return how much each of these clients counts."""
        rule = AGGREGATION_RULES.find(self.config.federation.aggregation)
        given: dict[str, Mapping[str, float]] = {"samples": self.counts, "chosen": self.chosen}
        by_rule = given.get(rule.weights, {})
        weights = {name: by_rule.get(name, 1.0) for name in names}
        is_balanced = part == "auxiliary" and METHODS.find(self.config.method).balances_auxiliary
        if is_balanced and self.target in weights and len(weights) > 1:
            weights[self.target] = sum(weight for name, weight in weights.items() if name != self.target)
        return weights

    def _matched_widths(self, part: str) -> tuple[int, ...]:
        """Return the widths of the layers of a part whose hidden neurons the rule matches; none if it matches none."""
        rule = AGGREGATION_RULES.find(self.config.federation.aggregation)
        return classifier_widths(self.config) if rule.matches_neurons and part == "classifier" else ()

    def _set(self, part: str, average: Array, members: Set[str], senders: Iterable[str] | None = None) -> None:
        """Store an average, after what the method does to it; `senders` if it has nothing but their newest parts."""
        fresh = self._fresh(self._clients)
        sources = [fresh[name].values for name in self.sources if name in fresh and name in members]
        target = fresh[self.target].values if self.target in fresh else None
        method = METHODS.find(self.config.method)
        moved = method.after_average(part, average, sources, target, self.config)
        if not isinstance(moved, np.ndarray) or moved.shape != average.shape:
            got = getattr(moved, "shape", type(moved).__name__)
            raise ValueError(f"method={self.config.method}: after_average must return shape {average.shape}; got {got}")
        _check_finite(part, moved)
        self._hand_out(part, moved, senders)

    def _hand_out(self, part: str, average: Array, senders: Iterable[str] | None = None) -> None:
        """Store an average as clients receive it."""
        if codec := codec_of(self.config.federation.compression):
            published = self.published.setdefault(part, Published())
            feeds_back = senders is not None and published.is_held_by(senders)
            average = published.publish(average, codec, feeds_back)
        self.current[part] = average
        self.changes[part] += 1


def _check_finite(part: str, values: Array) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"the average of {part} has numbers that are not finite")
