"""What happens to every message that arrives at the coordinator: it is checked and counted, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fedrf.federation.aggregate import Accepted
from fedrf.federation.state import State
from fedrf.protocol.envelope import PHASES, Envelope
from fedrf.protocol.message import BadMessageError, Message, check_message


class Reception:
    """Checks messages of known clients against the sizes that all agreed on."""

    def __init__(self, clients: tuple[str, ...], last_round: int, state: State) -> None:
        self.clients, self.last_round, self.state = clients, last_round, state

    def accept(self, messages: Sequence[Message], sender: str, number: int) -> tuple[Accepted, tuple[str, ...]]:
        """Check every message; return those to use, by kind, and the reasons against the others."""
        accepted: Accepted = {}
        refused = []
        for message in messages:
            try:
                self.check(message, sender, number)
            except BadMessageError as error:
                self.state.ledger.refuse(str(getattr(message, "kind", "unknown")), str(error))
                refused.append(str(error))
                continue
            message.deliver(accepted, partial(self.state.ledger.record, sender, number))
        return accepted, tuple(refused)

    def check(self, message: Message, sender: str, number: int) -> None:
        """Raise `BadMessageError`, or count the message."""
        check_message(message, sender, number, self.clients, self.state.sizes)
        self.state.ledger.count("up", message)

    def reason_against(self, envelope: Envelope, newest: tuple[int, int, int]) -> str | None:
        """Return why a call is not answered: unknown sender, phase or round, or one before its newest call."""
        sender, number = envelope.sender, envelope.round
        if sender not in self.clients:
            return f"unknown sender {sender!r}; known: {', '.join(self.clients)}"
        if envelope.phase not in PHASES or not 1 <= number <= self.last_round + 1:
            return f"{sender} calls for {envelope.phase!r} of round {number}"
        if call_number(envelope) < newest:
            return f"{sender} repeats round {number} after round {newest[1]}"
        return None


def call_number(envelope: Envelope) -> tuple[int, int, int]:
    """Return the order of a client's calls."""
    return envelope.attempt, envelope.round, PHASES.index(envelope.phase)
