"""What the coordinator counts and notes: bytes, refusals, ages of messages, figures and failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fedrf.protocol.messages import AnyMessage, Metrics

MAX_NOTES = 100


@dataclass
class Ledger:
    """Everything that a run's records are made from."""

    traffic: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)
    first_row: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    staleness: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def count(self, direction: str, message: AnyMessage) -> None:
        """Count the bytes of a message, and note figures."""
        self.count_bytes(direction, message.kind, message.nbytes)
        if isinstance(message, Metrics):
            self.rows.append({"client": message.sender, "round": message.round, **message.values})

    def rows_from(self, cursor: int) -> list[dict[str, Any]]:
        """Return figures from number `cursor` on, and forget those before: the driver has written them."""
        self.rows = self.rows[max(0, cursor - self.first_row) :]
        self.first_row = max(cursor, self.first_row)
        return list(self.rows)

    def count_bytes(self, direction: str, kind: str, number: int) -> None:
        """Count bytes that go `up` to the coordinator or `down` to a client."""
        self.traffic[direction, kind] += number

    def refuse(self, kind: str, reason: str) -> None:
        """Count a message that is not used, and say why."""
        self.refused[kind] += 1
        self.note(f"refused: {reason}")

    def note(self, failure: str) -> None:
        """Keep a failure for the summary; the first hundred tell enough."""
        if len(self.failures) < MAX_NOTES:
            self.failures.append(failure)
