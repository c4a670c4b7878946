"""What happens to everything that arrives at the coordinator: it is read, checked and counted, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fedrf.federation.aggregate import Accepted
from fedrf.federation.liveness import Liveness, SupersededError
from fedrf.federation.roster import Roster
from fedrf.federation.state import State
from fedrf.protocol.attendance import Attendance
from fedrf.protocol.compression import Codec, Difference
from fedrf.protocol.envelope import PHASES, Envelope
from fedrf.protocol.message import ArrayMessage, BadMessageError, Message, check_message
from fedrf.protocol.repeats import Repeats
from fedrf.protocol.wire import Call, largest_call, unpack_call

# Bounds of the norm of a part: a multiple of that of the current average with a root mean square besides, and a root
# mean square that no part exceeds: with two sources, the average would follow one that grows slowly enough.
LARGEST_GROWTH, SLACK = 10.0, 1.0
LARGEST_RMS = 100.0
ROUNDS_IN_VAIN = 10  # of every client, in which none has sent a part that could be used


class Reception:
    """Checks calls and messages of known clients against the sizes that all agreed on.

    Parameters
    ----------
    roster
        The clients.
    last_round
        T, the number of rounds.
    state
        The coordinator's state.
    liveness
        The current attempt of each client.
    attendance
        Who takes part in which round.
    is_resumed
        Whether clients may begin with a later round than the first: their checkpoints can be newer than the state.
    codec
        How parts are coded; None: they come whole.

    Attributes
    ----------
    broken
        Why the run cannot go on; empty if it can.
    """

    def __init__(
        self,
        roster: Roster,
        last_round: int,
        state: State,
        liveness: Liveness,
        attendance: Attendance,
        is_resumed: bool,
        codec: Codec | None = None,
    ) -> None:
        self.roster, self.last_round, self.state, self.liveness = roster, last_round, state, liveness
        self.attendance, self.codec, self._repeats = attendance, codec, Repeats()
        self.broken = ""
        self._next_round = {
            name: last_round + 1 if is_resumed else attendance.next_round(name, 0) for name in roster.clients
        }
        self._in_vain: dict[tuple[str, bool], _InVain] = {}

    def open(self, content: object) -> Call:
        """Return the call in some bytes, after checking that its sender is a client's current process."""
        try:
            call = unpack_call(content, largest_call(self.state.sizes))
            if call.sender not in self.liveness.attempts:
                raise BadMessageError(f"unknown sender {call.sender!r:.50}; known: {', '.join(self.roster.clients)}")
        except BadMessageError as error:
            self.state.ledger.refuse("call", str(error), "unknown")
            raise
        try:
            self.liveness.hear(call.sender, call.attempt)
        except SupersededError as error:
            self.state.ledger.refuse("superseded", str(error), call.sender)
            raise
        return call

    def accept(self, messages: Sequence[Message], sender: str, number: int) -> tuple[Accepted, tuple[str, ...]]:
        """Check every message; return those to use, by kind, and the reasons against the others."""
        accepted: Accepted = {}
        refused = []
        for message in messages:
            try:
                whole = self._whole(message)
                self.check(whole, sender, number, message)
            except BadMessageError as error:
                self._refuse(message, sender, str(error))
                refused.append(str(error))
                continue
            whole.deliver(accepted, partial(self.state.ledger.record, sender, number))
        return accepted, tuple(refused)

    def check(self, message: Message, sender: str, number: int, sent: Message | None = None) -> None:
        """Raise `BadMessageError`, or count the message, or what was sent in its place."""
        check_message(message, sender, number, self.liveness.attempts, self.state.sizes)
        if isinstance(message, ArrayMessage) and message.is_part:
            self._check_growth(message)
        self._in_vain.pop((message.kind, sender == self.roster.target), None)
        self.state.ledger.count("up", sent or message)

    def _whole(self, message: Message) -> Message:
        """Return a message with its array, if something else stands for it."""
        if not isinstance(message, ArrayMessage):
            return message
        if message.may_repeat:
            return self._repeats.restore(message)
        return self._decoded(message) if message.is_part and isinstance(message.values, Difference) else message

    def _decoded(self, message: ArrayMessage) -> ArrayMessage:
        where, published = f"{message.kind} of {message.sender}", self.state.aggregate.published.get(message.kind)
        base, steps = message.values
        reference = published.arrays.get(base) if published and type(base) is int else None
        if self.codec is None or reference is None or type(steps) is not tuple or len(steps) != 1:
            raise BadMessageError(f"{where} is not one change of an average that it was sent")
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                change = self.codec.decode(steps[0], reference.shape)
                return replace(message, values=reference + change)
        except ValueError as error:
            raise BadMessageError(f"{where} cannot be decoded: {error}") from None

    def reason_against(self, envelope: Envelope, newest: tuple[int, int, int]) -> str | None:
        """Return why a call is not answered: its phase or round is unknown, not yet due, or before its newest call."""
        sender, number = envelope.sender, envelope.round
        if sender not in self.liveness.attempts:
            return f"unknown sender {sender!r}; known: {', '.join(self.roster.clients)}"
        if envelope.phase not in PHASES or not 1 <= number <= self.last_round + 1:
            return f"{sender} calls for {envelope.phase!r:.50} of round {number}"
        if number > self._next_round[sender]:
            return f"{sender} calls for round {number}; its next is {self._next_round[sender]}"
        if call_number(envelope) < newest:
            return f"{sender} repeats round {number} after round {newest[1]}"
        return None

    def allow(self, sender: str, completed: int) -> None:
        """Let a client call for its next round after those that it was told are over."""
        self._next_round[sender] = max(self._next_round[sender], self.attendance.next_round(sender, completed))

    def _check_growth(self, message: ArrayMessage) -> None:
        """Raise if the norm of a part is out of proportion to that of the current average."""
        current, root = self.state.aggregate.current.get(message.kind), message.values.size**0.5
        limit = LARGEST_RMS * root
        if current is not None:
            limit = min(limit, LARGEST_GROWTH * _norm(current) + SLACK * root)
        if (norm := _norm(message.values)) > limit:
            raise BadMessageError(
                f"{message.kind} of {message.sender} has length {norm:.3g}; allowed next to the average: {limit:.3g}"
            )

    def _refuse(self, message: Message, sender: str, reason: str) -> None:
        kind = str(getattr(message, "kind", "unknown"))
        self.state.ledger.refuse(kind, reason, sender)
        is_target = sender == self.roster.target
        senders = {self.roster.target} if is_target else set(self.roster.sources)
        if self.attendance.is_sampled:  # other sources send in each round
            rounds = dict.fromkeys(senders, message.round)
            last = senders & self.attendance.expected(self.last_round, "round")
        else:
            rounds = {name: self.state.rounds.get(name, 0) for name in senders} | {sender: message.round}
            last = senders
        in_vain = self._in_vain.setdefault((kind, is_target), _InVain(dict(rounds), set()))
        in_vain.refused.add(sender)
        past = min(rounds[name] - in_vain.since[name] for name in senders) + 1
        is_last = message.round > self.last_round and in_vain.refused >= last
        if isinstance(message, ArrayMessage) and (past >= ROUNDS_IN_VAIN or is_last):
            whom = self.roster.target if is_target else "any source"
            when = "after the last round" if is_last else f"for {past} rounds"
            self.broken = self.broken or f"no {kind} of {whom} could be used {when}: {reason}"


class _InVain(NamedTuple):
    """A kind of message that has been refused ever since the clients were in these rounds, and who sent it."""

    since: dict[str, int]
    refused: set[str]


def _norm(values: np.ndarray) -> float:
    """Return the norm in double precision: squares of single precision may overflow."""
    with np.errstate(over="ignore"):
        quick = float(np.linalg.norm(values.ravel()))
    return quick if np.isfinite(quick) else float(np.linalg.norm(values.ravel().astype(np.float64)))


def call_number(envelope: Envelope) -> tuple[int, int, int]:
    """Return the order of a client's calls."""
    return envelope.attempt, envelope.round, PHASES.index(envelope.phase)
