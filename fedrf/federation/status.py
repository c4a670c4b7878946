"""What the driver polls: figures, and how far each client is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrf.protocol.place import Place


@dataclass(frozen=True)
class Status:
    """The state of a federation at one moment.

    Attributes
    ----------
    rows
        New figures of clients.
    seconds, round_seconds
        Time in all, and time in rounds.
    rounds
        The round that each client has reached.
    present, finished
        Clients that have not left, and those that have done all their rounds.
    preparing
        The share of samples that clients have computed features of, while they do.
    places
        Where clients run.
    traffic
        Bytes by direction and kind of message.
    refused
        Numbers of refused messages by kind.
    staleness
        Numbers of messages by their age in rounds.
    silent
        Clients without a sign of life for longer than the deadline, and for how many seconds.
    broken
        Why the run cannot go on; empty if it can.
    suspicions
        For each client, why its messages were not used, and how often.
    failures, notes
        Texts for the summary.
    measured
        Quantities that the run has estimated, such as σ.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    round_seconds: float = 0.0
    rounds: Mapping[str, int] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    finished: frozenset[str] = frozenset()
    preparing: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    traffic: Mapping[tuple[str, str], int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    staleness: Mapping[int, int] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)
    broken: str = ""
    suspicions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    measured: Mapping[str, Any] = field(default_factory=dict)
