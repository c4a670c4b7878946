"""The coordinator: relays Σℓ, aggregates W, C and extractors, counts bytes, and decides when everybody saves.

A plain class whose calls are coroutines; `fedrf.runtime` makes an actor of it, or runs it in a thread. A client makes
one call a round, with Σℓ of this round and the W and C of the step before it: random features do not depend on W, so
nothing is stale. The target's Σℓ goes to the sources that sent theirs, the sources' go to the target, and nothing goes
from source to source. An aggregate goes to those whose part is in it, and to the target.

In `sync` mode a call returns when all clients have made it. In `async` mode sources never wait; the target waits for
the fastest source, as there would be nothing new to learn from.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedrf.aggregation import RULES, Array
from fedrf.asynchrony import AsyncPart
from fedrf.checkpoints import CoordinatorFiles
from fedrf.config import Config
from fedrf.ledger import Ledger
from fedrf.messages import (
    AnyMessage,
    BadMessageError,
    Contract,
    Envelope,
    Greeting,
    Message,
    Metrics,
    Reply,
)

if TYPE_CHECKING:
    from fedrf.warming import WarmStart, Warmth

PARTS = ("aligner", "classifier", "extractor")
# Of one round, in this order. `commit`: parts before the extractor moves; `round`: Σℓ, with parts that are not yet
# committed; `final`: the parts after the last round; `ballot`: networks that vote.
PHASES = ("commit", "round", "final", "ballot")


@dataclass
class State:
    """Everything that outlives a call: what a checkpoint keeps."""

    sigma: float | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    embeddings: dict[str, tuple[Message, int]] = field(default_factory=dict)
    current: dict[str, Array] = field(default_factory=dict)
    asynchronous: dict[str, AsyncPart] = field(default_factory=lambda: {kind: AsyncPart() for kind in PARTS})
    ballots: dict[str, dict[str, Array]] = field(default_factory=dict)
    version: int = 0
    generation: int = 0
    last_closed: tuple[int, int] = (0, 0)
    saved: dict[str, int] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    seconds: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)


Accepted = dict[str, Message]


class Outcome(NamedTuple):
    """What a phase of a round came to, the same for all who met in it."""

    aggregated: set[str]
    generation: int
    stop: bool


class Meeting:
    """Calls that are answered together, when all present clients have made them."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Coordinator:
    """Mailbox, aggregate and ledger of one federation."""

    def __init__(
        self, config: Config, sources: Sequence[str], target: str, files: CoordinatorFiles, resume: bool = False
    ) -> None:
        self.config, self.sources, self.target, self.files = config, tuple(sources), target, files
        self.clients = (*self.sources, target)
        self.state: State = files.load() if resume else State()
        self.present = set(self.clients)
        self.meetings: dict[tuple[Any, ...], Meeting] = {}
        self.answers: dict[str, tuple[tuple[Any, ...], asyncio.Task[Reply]]] = {}
        self.news = asyncio.Event()
        self.stopping = self.ending = False
        self.warming: WarmStart
        self.snapshot: bytes | None = None
        self.last_snapshot = self.began = time.monotonic()

    # Calls of clients

    async def greet(self, greeting: Greeting) -> tuple[float, Reply]:
        """Agree on σ; a client that comes back gets the current round and model at once."""
        state = self.state
        self._check_and_count(greeting, greeting.sender, 0)
        self.present.add(greeting.sender)
        state.finished.discard(greeting.sender)
        if state.sigma is None:
            await self._meet(("greet",), greeting.sender, greeting)
        assert state.sigma is not None
        return state.sigma, self._catch_up(greeting.sender)

    async def warm_start(self, step: int, message: Message) -> Warmth:
        """Solve for W together, before round 1; a bad message here ends the run."""
        self._check_and_count(message, message.sender, 0)
        warmth: Warmth = await self._meet(("warm start", step), message.sender, message)
        self.state.ledger.count_bytes("down", "aligner" if warmth.done else "product", warmth.values.nbytes)
        return warmth

    async def exchange(self, envelope: Envelope) -> Reply:
        """Take in what a client sends in one phase of a round and answer; a repeated call gets the same answer."""
        if envelope.sender not in self.clients:
            reason = f"unknown sender {envelope.sender!r}; known: {', '.join(self.clients)}"
            self.state.ledger.refuse("envelope", reason)
            return Reply(refused=(reason,))
        key = (envelope.round, envelope.phase, envelope.attempt)
        if self.answers.get(envelope.sender, ((), None))[0] != key:
            self.answers[envelope.sender] = (key, asyncio.ensure_future(self._answer(envelope)))
        return await asyncio.shield(self.answers[envelope.sender][1])

    async def report(self, metrics: Metrics) -> None:
        """Take in figures outside of a round."""
        self._accept((metrics,), metrics.sender, metrics.round)

    async def saved(self, sender: str, generation: int) -> int:
        """Note that a client has saved; with the last of them the generation counts. Return the oldest to keep."""
        self.state.saved[sender] = generation
        self._commit_if_complete()
        return self.files.oldest_kept

    async def finish(self, sender: str) -> None:
        """Note that a client has done all its rounds."""
        self.state.finished.add(sender)
        self._commit_if_complete()
        self._recheck()

    # Calls of the driver

    async def leave(self, sender: str, reason: str) -> None:
        """Go on without a client, until it greets again."""
        self.present.discard(sender)
        self.snapshot = None  # it would never be complete
        self.state.ledger.note(f"{sender} left in round {self.state.rounds.get(sender, 0)}: {reason}")
        self._recheck()

    async def stop(self) -> None:
        """Ask all clients to save and end after their current round."""
        self.stopping = True
        if self.config.federation.mode == "async":
            self._snapshot_if_due()
        self.news.set()

    async def poll(self, cursor: int) -> dict[str, Any]:
        """Return what the driver shows and writes: figures from number `cursor` on, and where everybody is."""
        state, ledger = self.state, self.state.ledger
        return {
            "rows": ledger.rows_from(cursor),
            "first_row": ledger.first_row,
            "seconds": state.seconds + time.monotonic() - self.began,
            "rounds": {name: state.rounds.get(name, 0) for name in self.clients},
            "present": sorted(self.present),
            "finished": sorted(state.finished),
            "traffic": dict(ledger.traffic),
            "refused": dict(ledger.refused),
            "staleness": dict(ledger.staleness),
            "failures": list(ledger.failures),
        }

    # Before the rounds

    def _settle(self, greetings: dict[str, Greeting]) -> None:
        """Take the median of the clients' widths for σ, unless it is given."""
        sigma = self.config.model.sigma
        self.state.sigma = median(one.width for one in greetings.values()) if sigma == "median" else sigma
        self.state.counts = {name: one.count for name, one in greetings.items()}

    def _warm(self, step: int, messages: dict[str, Any]) -> Warmth:
        # Imported here: a coordinator that only averages starts seconds sooner without torch.
        from fedrf.warming import WarmStart

        in_order = {name: messages[name] for name in self.clients}
        if step == 0:
            self.warming = WarmStart(self.config, self.target)
            if self.config.align.warm_start == "statistics":
                return self.warming.solve(in_order)
            return self.warming.begin(in_order)
        return self.warming.advance(in_order, step)

    def _catch_up(self, sender: str) -> Reply:
        """Where the others are, for a client that comes late or back."""
        parts = dict(self.state.current)
        self._count_down(parts.items())
        number, phase = self.state.last_closed
        done = number if phase >= PHASES.index("round") else number - 1
        if self.config.federation.mode == "async":
            done = max(self.state.rounds.get(name, 0) for name in self.sources) - 1
        return Reply(parts=parts, round=max(0, done), model_version=self.state.version)

    # Rounds

    async def _answer(self, envelope: Envelope) -> Reply:
        sender, state = envelope.sender, self.state
        self.present.add(sender)
        accepted, refused = self._accept(envelope.messages, sender, envelope.round)
        if self.config.federation.mode == "sync":
            key = (envelope.round, PHASES.index(envelope.phase))
            if key <= state.last_closed:
                return self._catch_up(sender)  # the others went on without it
            state.rounds[sender] = envelope.round
            outcome = await self._meet(key, sender, accepted)
        else:
            state.rounds[sender] = max(envelope.round, state.rounds.get(sender, 0))
            aggregated = self._take_in(envelope, accepted)
            if sender == self.target:
                await self._wait_for_sources(envelope)
                self._snapshot_if_due(force=envelope.phase == "final")
            outcome = Outcome(aggregated, state.generation, self.stopping)
        return self._reply(envelope, accepted, outcome, refused)

    async def _wait_for_sources(self, envelope: Envelope) -> None:
        """Hold the target until the fastest source is in its round; for a vote, until all have cast theirs."""

        def ready() -> bool:
            if envelope.phase == "ballot":
                return self.present - {self.target} <= set(self.state.ballots)
            return max(self.state.rounds.get(name, 0) for name in self.sources) >= envelope.round

        while not ready() and not self.stopping:
            self.news.clear()
            await self.news.wait()
        self.ending = self.ending or envelope.phase == "final"

    async def _meet(self, key: tuple[Any, ...], sender: str, entry: Any) -> Any:
        meeting = self.meetings.setdefault(key, Meeting())
        meeting.entries[sender] = entry
        self._recheck()
        # Before round 1 clients import and load for as long as they need; the driver sees it when one dies.
        deadline = self.config.federation.deadline if isinstance(key[0], int) else None
        while not (await asyncio.wait([meeting.result], timeout=deadline))[0]:
            for name in sorted(self._expected() - meeting.entries.keys()):
                await self.leave(name, f"silent for {deadline:g} s")
        return meeting.result.result()

    def _expected(self) -> set[str]:
        return self.present - self.state.finished

    def _recheck(self) -> None:
        """Close every meeting that waits for nobody any more."""
        for key, meeting in list(self.meetings.items()):
            if self._expected() <= meeting.entries.keys():
                del self.meetings[key]
                try:
                    meeting.result.set_result(self._close(key, meeting.entries))
                except Exception as error:
                    meeting.result.set_exception(error)  # to all who met, or the others would wait for ever
        self.news.set()

    def _close(self, key: tuple[Any, ...], entries: dict[str, Any]) -> Any:
        if key[0] == "greet":
            return self._settle(entries)
        if key[0] == "warm start":
            return self._warm(key[1], entries)
        return self._close_phase(key, entries)

    def _accept(self, messages: Sequence[AnyMessage], sender: str, number: int) -> tuple[Accepted, tuple[str, ...]]:
        """Check every message; return those to use, and the reasons against the others."""
        accepted, refused = {}, []
        for message in messages:
            try:
                self._check_and_count(message, sender, number)
            except BadMessageError as error:
                self.state.ledger.refuse(str(getattr(message, "kind", "unknown")), str(error))
                refused.append(str(error))
            else:
                if isinstance(message, Message):
                    accepted[message.kind] = message
        return accepted, tuple(refused)

    def _check_and_count(self, message: AnyMessage, sender: str, number: int) -> None:
        size = 2 * self.config.model.num_features
        shapes = {**self.state.shapes, "mean_embedding": (size,), "aligner": (size, self.config.model.dim)}
        Contract(self.clients, shapes).check(message, sender, number)
        if isinstance(message, Message) and message.kind in PARTS:
            # Sizes of C and G are not known here beforehand: the first that arrives sets them for the run.
            self.state.shapes.setdefault(message.kind, message.values.shape)
        self.state.ledger.count("up", message)

    def _reply(self, envelope: Envelope, accepted: Accepted, outcome: Outcome, refused: tuple[str, ...]) -> Reply:
        """Σℓ of the peers, and each aggregate that the sender is part of; the target gets all."""
        state, is_target = self.state, envelope.sender == self.target
        embeddings = self._peers(envelope.sender, accepted) if envelope.phase == "round" else ()
        kinds = [kind for kind in PARTS if kind in outcome.aggregated and (is_target or kind in accepted)]
        parts = {kind: state.current[kind] for kind in kinds}
        ballots = tuple(state.ballots.values()) if is_target and envelope.phase == "ballot" else ()
        self._count_down((one.kind, one.values) for one in embeddings)
        for sent in (parts, *ballots):
            self._count_down(sent.items())
        return Reply(
            embeddings,
            parts,
            ballots,
            model_version=state.version,
            generation=outcome.generation,
            round=self.config.train.rounds if self.ending and not is_target else envelope.round,
            stop=outcome.stop,
            refused=refused,
        )

    def _peers(self, sender: str, accepted: Accepted) -> tuple[Message, ...]:
        """Σℓ that `sender` may see: the target's if it sent its own, the sources' if it is the target."""
        if "mean_embedding" not in accepted:
            return ()
        names = self.sources if sender == self.target else (self.target,)
        limit = self.config.federation.max_staleness
        return tuple(
            self.state.embeddings[name][0]
            for name in names
            if name in self.state.embeddings and self._age(self.state.embeddings[name][1]) <= limit
        )

    def _count_down(self, parts: Any) -> None:
        for kind, values in parts:
            self.state.ledger.count_bytes("down", kind, values.nbytes)

    # Aggregation

    def _close_phase(self, key: tuple[int, int], entries: dict[str, Accepted]) -> Outcome:
        """Aggregate what all clients sent in one phase of a round, in the order of the clients (sync)."""
        state, aggregated, phase = self.state, set(), PHASES[key[1]]
        state.last_closed = key
        for kind in PARTS if phase != "ballot" else ():
            messages = [entries[name][kind] for name in self.clients if kind in entries.get(name, {})]
            if messages:
                weights = np.array([self._weight(message.sender) for message in messages], dtype=np.float64)
                rule = RULES[self.config.federation.aggregation]
                self._set_current(kind, rule([message.values for message in messages], weights))
                aggregated.add(kind)
        if phase == "round":
            # Only now: the aligners that just came in grew with the embeddings of the round before.
            state.embeddings = {
                name: (accepted["mean_embedding"], state.version)
                for name, accepted in entries.items()
                if "mean_embedding" in accepted
            }
        if phase == "ballot":
            self._cast(entries)
        if phase in ("round", "final"):
            self._snapshot_if_due(force=phase == "final")
        return Outcome(aggregated, state.generation, self.stopping)

    def _cast(self, entries: dict[str, Accepted]) -> None:
        for name, accepted in entries.items():
            if name in self.sources:
                self.state.ballots[name] = {kind: message.values for kind, message in accepted.items()}

    def _take_in(self, envelope: Envelope, accepted: Accepted) -> set[str]:
        """Post Σℓ and blend the parts of one client into the aggregate (async)."""
        state = self.state
        if accepted:
            state.ledger.staleness[round(self._age(envelope.model_version))] += 1
        if envelope.phase == "ballot":
            self._cast({envelope.sender: accepted})
            self.news.set()
            return set()
        if "mean_embedding" in accepted:
            state.embeddings[envelope.sender] = (accepted["mean_embedding"], envelope.model_version)
        for kind in PARTS:
            if kind in accepted:
                blend = state.asynchronous[kind]
                values, basis = accepted[kind].values, envelope.model_version
                counts = {name: self._weight(name) for name in self.clients}
                if blend.add(envelope.sender, values, basis, self._age, counts, self.config.federation):
                    self._set_current(kind, blend.current)
                    blend.current = state.current[kind]
        if envelope.sender in self.sources:
            state.version += 1
        self.news.set()
        return set(state.current)

    def _weight(self, name: str) -> int:
        return self.state.counts.get(name, 1) if self.config.federation.aggregation == "weighted" else 1

    def _age(self, version: int) -> float:
        """Return the rounds that passed since a version of the model: updates divided by sources."""
        return (self.state.version - version) / len(self.sources)

    def _set_current(self, kind: str, values: Array | None) -> None:
        assert values is not None
        if kind == "aligner" and self.config.align.step == "proximal":
            values = self._after_proximal_step(values)
        self.state.current[kind] = values

    def _after_proximal_step(self, aligner: Array) -> Array:
        """W after the closed-form step against the discrepancies of all sources whose Σℓ is at hand."""
        limit = self.config.federation.max_staleness
        usable = {
            name: message.values
            for name, (message, version) in self.state.embeddings.items()
            if self._age(version) <= limit
        }
        own = usable.pop(self.target, None)
        if own is None or not usable:
            return aligner
        # Imported here: a coordinator that only averages starts seconds sooner without torch.
        import torch

        from fedrf.alignment import proximal_step

        columns = np.stack([usable[name] - own for name in self.sources if name in usable], axis=1)
        return proximal_step(torch.tensor(aligner), torch.from_numpy(columns), self.config.align.gamma).numpy()

    # Checkpoints

    def _snapshot_if_due(self, force: bool = False) -> None:
        """Begin a generation: from now on replies carry its number, and clients save when they see it."""
        waited = time.monotonic() - self.last_snapshot
        if self.snapshot is not None and not (force or self.stopping):
            return  # the one before is not complete yet
        if force or self.stopping or waited >= self.config.federation.checkpoint_seconds:
            self.files.check_owner()
            self.state.generation += 1
            now = time.monotonic()
            self.state.seconds, self.began = self.state.seconds + now - self.began, now
            self.snapshot = pickle.dumps(self.state)
            self.last_snapshot = time.monotonic()

    def _commit_if_complete(self) -> None:
        state = self.state
        if self.snapshot is not None and all(state.saved.get(name) == state.generation for name in self._expected()):
            kept: State = pickle.loads(self.snapshot)
            kept.saved = dict(state.saved)
            self.files.save(state.generation, pickle.dumps(kept))
            self.snapshot = None
