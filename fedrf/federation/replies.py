"""What the coordinator answers: Σℓ of the peers, averages, and source models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.federation.aggregate import Accepted, relayed
from fedrf.federation.roster import Roster
from fedrf.federation.source_models import complete_source_models
from fedrf.federation.state import State
from fedrf.protocol.aggregation import Array
from fedrf.protocol.attendance import Attendance
from fedrf.protocol.compression import Difference
from fedrf.protocol.envelope import Envelope, Reply
from fedrf.protocol.messages import PARTS
from fedrf.protocol.repeats import Repeats
from fedrf.protocol.schedule import participants_of


class PhaseResult(NamedTuple):
    """The result of a phase of a round, the same for all clients.

    Attributes
    ----------
    averaged
        Parts of which there is an average.
    checkpoint_version
        The newest checkpoint version.
    stop
        Whether clients are asked to stop.
    round
        The round that the federation has reached; before that of the call, if the run stops before it.
    """

    averaged: set[str]
    checkpoint_version: int
    stop: bool
    round: int


class Replies:
    """Builds replies and counts their bytes."""

    def __init__(self, config: Config, roster: Roster, state: State, attendance: Attendance) -> None:
        self.config, self.roster, self.state, self.attendance = config, roster, state, attendance
        self.method = METHODS.find(config.method)
        self._delivered: Counter[str] = Counter()  # how often the target has received each part
        self._repeats: dict[str, Repeats] = {}  # what each client has received of its peers
        self._changes: dict[str, tuple[int, dict[int, Array | Difference]]] = {}  # of the newest averages

    def build(self, envelope: Envelope, accepted: Accepted, result: PhaseResult, refused: tuple[str, ...]) -> Reply:
        """Return Σℓ of the peers and each average that the sender is part of; the target gets all of them."""
        state, is_target = self.state, envelope.sender == self.roster.target
        members = participants_of(self.config, self.roster.sources, envelope.round).mean_embedding
        embeddings = (
            state.aggregate.peers(envelope.sender, members) if relayed(accepted) and envelope.phase == "round" else ()
        )
        wanted = self._new_parts() & result.averaged if is_target else self._due_parts(envelope, accepted, result)
        # A client whose part was refused gets the average instead, and goes on with it.
        wanted |= {message.kind for message in envelope.messages} & state.aggregate.current.keys() - accepted.keys()
        parts = self._parts([part for part in PARTS if part in wanted], envelope.phase)
        if is_target:
            self._note_delivered(parts, envelope.phase)
        elif self.attendance.is_sampled:
            received = state.received.setdefault(envelope.sender, {})
            received.update({part: state.aggregate.changes[part] for part in parts})
        sent = {part: self._since(part, values, envelope.held.get(part, 0)) for part, values in parts.items()}
        numbers = self._numbers(envelope.sender, parts)
        models = self._source_models(envelope, result) if is_target else {}
        solution = state.class_map if is_target and envelope.phase == "statistics" else None
        state.delivered[envelope.sender] = state.aggregate.version
        repeats = self._repeats.setdefault(envelope.sender, Repeats())
        embeddings = tuple(repeats.shorten(message) if message.may_repeat else message for message in embeddings)
        for message in embeddings:
            state.ledger.count_relayed(message)
        self._count(sent)
        for model in models.values():
            self._count(model)
        return Reply(
            embeddings,
            sent,
            models,
            solution,
            model_version=state.aggregate.version,
            checkpoint_version=result.checkpoint_version,
            round=self.config.train.rounds if state.ending and not is_target else result.round,
            stop=result.stop,
            refused=refused,
            numbers=numbers,
        )

    def catch_up(self, receiver: str, completed_rounds: int, phase: str = "greet") -> Reply:
        """Return the current round and the whole model, for a client that joins late or again."""
        state = self.state
        self._repeats.pop(receiver, None)
        parts = self._parts(state.aggregate.current, phase)
        self._count(parts)
        state.delivered[receiver] = state.aggregate.version
        if receiver == self.roster.target:  # it may continue from a checkpoint, without what it had received since then
            self._delivered.clear()
        completed, version = max(0, completed_rounds), state.aggregate.version
        has_last, numbers = self._has_last(receiver), self._numbers(receiver, parts)
        return Reply(parts=parts, round=completed, model_version=version, has_last=has_last, numbers=numbers)

    def _has_last(self, client: str) -> bool:
        """Tell whether what a client sends after the last round has arrived."""
        config, state = self.config, self.state
        has_statistics = config.align.statistics == "none" or client in state.statistics
        has_vote = config.federation.prediction == "average" or client in state.source_models
        return state.rounds.get(client, 0) > config.train.rounds and has_statistics and has_vote

    def _due_parts(self, envelope: Envelope, accepted: Accepted, result: PhaseResult) -> set[str]:
        """Return the averages for a source: those that it is part of, or after it has skipped rounds all newer ones.

        A source that skips the round gets none: it gets the newest ones when it takes part again.
        """
        source, number, changes = envelope.sender, envelope.round, self.state.aggregate.changes
        if not self.attendance.takes_part(source, number):
            return set()
        if not self.attendance.joins(source, number) or result.round < number:
            return result.averaged & set(accepted)
        received = self.state.received.get(source, {})
        return {part for part in self.state.aggregate.current if changes[part] > received.get(part, 0)}

    def _new_parts(self) -> set[str]:
        changes = self.state.aggregate.changes
        return {part for part in PARTS if changes[part] > self._delivered[part]}

    def _parts(self, names: Iterable[str], phase: str) -> dict[str, Array]:
        """Return averages to load, but in the middle of a round none that its messages were computed with."""
        current = self.state.aggregate.current
        fixed = PARTS if self.method.message.needs_aligner else ("extractor",)
        return {part: current[part] for part in names if not (phase == "round" and part in fixed)}

    def _since(self, part: str, values: Array, base: int) -> Array | Difference:
        """Return an average, or what has changed since a client got its number `base`."""
        published = self.state.aggregate.published.get(part)
        if published is None:
            return values
        number, changes = self._changes.get(part, (0, {}))
        if number != published.number:
            changes = {}
            self._changes[part] = published.number, changes
        # The same object for all clients that hold the same: it is put into shared memory once.
        if base not in changes:
            changes[base] = published.since(base)
        return changes[base]

    def _numbers(self, receiver: str, parts: Mapping[str, Array]) -> dict[str, int]:
        """Return the numbers of averages that are sent to a client, and note that it may hold them."""
        published = {part: kept for part, kept in self.state.aggregate.published.items() if part in parts}
        for averages in published.values():
            averages.note_sent(receiver)
        return {part: averages.number for part, averages in published.items()}

    def _note_delivered(self, parts: dict[str, Array], phase: str) -> None:
        changes = self.state.aggregate.changes
        self._delivered.update({part: changes[part] - self._delivered[part] for part in parts})
        expects_classifier = self.config.federation.prediction == "average" and self.config.align.statistics == "none"
        if phase == "final" and not changes["classifier"] and expects_classifier:
            self.state.ledger.record_failure("the target never received a classifier: its accuracy is meaningless")

    def _source_models(self, envelope: Envelope, result: PhaseResult) -> dict[str, dict[str, Array]]:
        if envelope.phase == "source_models" or (self.method.shows_sources and result.averaged):
            return complete_source_models(self.config, self.state, self.roster.sources)
        return {}

    def _count(self, parts: Mapping[str, Array | Difference]) -> None:
        for part, values in parts.items():
            self.state.ledger.count_bytes("down", part, values.nbytes)
