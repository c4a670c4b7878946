"""What the coordinator counts and records: bytes, refusals, suspicions, ages of messages, figures and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrf.protocol.message import Message

MAX_FAILURES, MAX_TEXT = 100, 1000
MAX_REASONS = 3  # that are recorded for each client and kind of message; all refusals are counted


@dataclass
class Ledger:
    """The records of a run.

    Attributes
    ----------
    traffic
        Bytes by direction (`up` to the coordinator, `down` to a client) and kind of message.
    rows
        Figures of clients that the driver has not read yet.
    first_row
        The number of the first of these rows.
    refused
        Numbers of refused messages by kind.
    staleness
        Numbers of messages by their age in rounds.
    failures
        Texts for the summary.
    suspicions
        For each client, why its messages were refused or left out, and how often.
    """

    traffic: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)
    first_row: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    staleness: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    suspicions: dict[str, Counter[str]] = field(default_factory=dict)

    def count(self, direction: str, message: Message) -> None:
        """Count the bytes of a message."""
        self.count_bytes(direction, message.kind, message.nbytes)

    def count_bytes(self, direction: str, kind: str, number: int) -> None:
        """Count bytes that go `up` to the coordinator or `down` to a client."""
        self.traffic[direction, kind] += number

    def count_relayed(self, message: Message) -> None:
        """Count a message that is passed on to a client, and the answers that it causes."""
        self.count("down", message)
        for kind, number in message.relay_bytes.items():
            for direction in ("up", "down"):
                self.count_bytes(direction, kind, number)

    def record(self, client: str, number: int, figures: Mapping[str, float]) -> None:
        """Record the figures of a client."""
        self.rows.append({"client": client, "round": number, **figures})

    def rows_from(self, first: int) -> list[dict[str, Any]]:
        """Return rows from number `first` on, and forget those before: the driver has written them."""
        self.rows = self.rows[max(0, first - self.first_row) :]
        self.first_row = max(first, self.first_row)
        return list(self.rows)

    def refuse(self, kind: str, reason: str, sender: str) -> None:
        """Count a message that is not used, and record why."""
        self.refused[kind] += 1
        if self._count_suspicion(sender, f"{kind} refused") <= MAX_REASONS:
            self.record_failure(f"refused: {reason}")

    def suspect(self, sender: str, reason: str) -> None:
        """Count a message that was left out because it contradicts others; the first for a reason is a failure too."""
        if self._count_suspicion(sender, reason) == 1:
            self.record_failure(f"left out: {sender}, because {reason}")

    def _count_suspicion(self, sender: str, reason: str) -> int:
        reasons = self.suspicions.setdefault(sender, Counter())
        reasons[reason] += 1
        return reasons[reason]

    def record_failure(self, failure: str) -> None:
        """Record a failure for the summary; only the first hundred."""
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(failure[:MAX_TEXT])
