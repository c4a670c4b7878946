"""The coordinator: relays Σℓ, aggregates W, C and extractors, counts bytes, and decides when everybody saves.

A plain class whose calls are coroutines; `runtime.ray` makes an actor of it, or runs it in a thread. A client makes
one call a round, with Σℓ of this round and the W and C of the step before it: random features do not depend on W, so
nothing is stale. The target's Σℓ goes to the sources that sent theirs, the sources' go to the target, and nothing goes
from source to source. An aggregate goes to those whose part is in it, and to the target.

In `sync` mode a call returns when all clients have made it. In `async` mode sources never wait; the target waits for
the fastest source, as there would be nothing new to learn from.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from fedrf.config.schema import PER_SAMPLE, Config
from fedrf.federation.aggregate import PARTS, Accepted, SharedModel, relayed
from fedrf.federation.barrier import Key, Meetings
from fedrf.federation.checkpoint_versions import Generations
from fedrf.federation.checkpoints import CoordinatorFiles
from fedrf.protocol.aggregation import Array
from fedrf.protocol.ledger import Ledger
from fedrf.protocol.messages import (
    KEY_BYTES,
    AnyMessage,
    BadMessageError,
    Ciphertexts,
    Contract,
    Envelope,
    Greeting,
    Message,
    Metrics,
    Reply,
    known_shapes,
)
from fedrf.protocol.schedule import members_of

if TYPE_CHECKING:
    from fedrf.federation.warm_start import WarmStart, Warmth

# Of one round, in this order. `commit`: parts before the extractor moves; `round`: Σℓ, with parts that are not yet
# committed; `final`: the parts after the last round; `ballot`: networks that vote.
PHASES = ("commit", "round", "final", "ballot")


@dataclass
class State:
    """Everything that outlives a call: what a checkpoint keeps."""

    model: SharedModel
    sigma: float | None = None
    informative_gamma: tuple[float, float] | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    ballots: dict[str, dict[str, Array]] = field(default_factory=dict)
    last_closed: tuple[int, int] = (0, 0)
    finished: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    ending: bool = False
    seconds: float = 0.0
    round_seconds: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)


class Outcome(NamedTuple):
    """What a phase of a round came to, the same for all who met in it."""

    aggregated: set[str]
    generation: int
    stop: bool


class Coordinator:
    """Mailbox, aggregate and ledger of one federation."""

    def __init__(
        self, config: Config, sources: Sequence[str], target: str, files: CoordinatorFiles, resume: bool = False
    ) -> None:
        self.config, self.sources, self.target, self.files = config, tuple(sources), target, files
        self.clients = (*self.sources, target)
        self.state: State
        self.state, saved = files.load() if resume else (State(SharedModel(config, self.sources, target)), {})
        self.state.shapes |= known_shapes(config)
        self.state.finished.clear()
        number = files.newest if resume else 0
        self.generations = Generations(files, config.federation.checkpoint_seconds, number, saved)
        self.meetings = Meetings(self._expected, self._close, self.leave)
        self.present = set(self.clients)
        self.answers: dict[str, tuple[tuple[int, int, int], asyncio.Task[Reply]]] = {}
        self.news = asyncio.Event()
        self.begun = self.stopping = False
        self.delivered: Counter[str] = Counter()
        self.preparing: dict[str, float] = {}
        self.notes: dict[str, None] = {}
        self.warming: WarmStart
        self.basis_shape: tuple[int, ...]
        self.began = self.rounds_began = time.monotonic()
        self.earlier_rounds = self.state.round_seconds

    # Calls of clients

    async def prepare(self, sender: str, share: float) -> bool:
        """Note how far a client is with its samples; tell whether to stop."""
        self.preparing[sender] = share
        if share >= 1:
            del self.preparing[sender]
        return self.stopping

    async def note(self, text: str) -> None:
        """Keep what a client wants people to know; several may want the same."""
        self.notes.setdefault(text)

    async def move(self, sender: str, nbytes: int) -> None:
        """Count the samples that had to be brought to a client, once, where sources are pooled."""
        if sender not in self.state.moved:
            self.state.moved.add(sender)
            self.state.ledger.count_bytes("up", "samples", nbytes)

    async def greet(self, greeting: Greeting) -> tuple[float, Reply]:
        """Wait for everybody and agree on σ; a client that comes back gets the current round and model at once."""
        self._check_and_count(greeting, greeting.sender, 0)
        self.present.add(greeting.sender)
        self.preparing.pop(greeting.sender, None)
        self.state.finished.discard(greeting.sender)
        self.state.model.counts[greeting.sender] = greeting.count
        if not self.begun and not self.stopping:
            # No deadline: clients import and load for as long as they need, and the driver sees it when one dies.
            await self.meetings.attend(("greet",), greeting.sender, greeting, None)
        if not self.begun:
            return 0.0, Reply(stop=True)
        assert self.state.sigma is not None
        return self.state.sigma, self._catch_up()

    async def warm_start(self, step: int, message: Message) -> Warmth:
        """Solve for W together, before round 1; a bad message here ends the run."""
        self._check_and_count(message, message.sender, 0)
        if step and message.values.shape != self.basis_shape:
            raise BadMessageError(f"product of {message.sender} must have shape {self.basis_shape}")
        warmth: Warmth = await self.meetings.attend(
            ("warm start", step), message.sender, message, self.config.federation.deadline
        )
        self.state.ledger.count_bytes("down", "aligner" if warmth.done else "product", warmth.values.nbytes)
        return warmth

    async def exchange(self, envelope: Envelope) -> Reply:
        """Take in what a client sends in one phase of a round and answer; a repeated call gets the same answer."""
        sender, last = envelope.sender, self.config.train.rounds + 1
        if sender not in self.clients:
            return self._refuse(envelope, f"unknown sender {sender!r}; known: {', '.join(self.clients)}")
        if envelope.phase not in PHASES or not 1 <= envelope.round <= last:
            return self._refuse(envelope, f"{sender} calls for {envelope.phase!r} of round {envelope.round}")
        key = (envelope.attempt, envelope.round, PHASES.index(envelope.phase))
        newest = self.answers[sender][0] if sender in self.answers else (0, 0, 0)
        if key < newest:
            return self._refuse(envelope, f"{sender} repeats round {envelope.round} after round {newest[1]}")
        if key > newest:
            self.answers[sender] = (key, asyncio.ensure_future(self._answer(envelope)))
        return await asyncio.shield(self.answers[sender][1])

    def _refuse(self, envelope: Envelope, reason: str) -> Reply:
        self.state.ledger.refuse("envelope", reason)
        return Reply(round=envelope.round, refused=(reason,))

    async def report(self, metrics: Metrics) -> bool:
        """Take in figures outside of a round; tell whether to stop."""
        self._accept((metrics,), metrics.sender, metrics.round)
        return self.stopping

    async def saved(self, sender: str, generation: int) -> int:
        """Note that a client has saved; with the last of them the generation counts. Return the oldest to keep."""
        self.generations.note(sender, generation)
        self.generations.commit_if_complete(self._expected())
        return self.generations.oldest_needed(sender)

    async def finish(self, sender: str) -> None:
        """Note that a client has done all its rounds."""
        self.state.finished.add(sender)
        self._recheck()

    # Calls of the driver

    async def leave(self, sender: str, reason: str) -> None:
        """Go on without a client, until it greets again; nobody begins without it."""
        if not self.begun:
            self.state.ledger.note(f"{sender} left before round 1: {reason}")
            return
        self.present.discard(sender)
        self.generations.abandon()
        self.state.ledger.note(f"{sender} left in round {self.state.rounds.get(sender, 0)}: {reason}")
        self._recheck()

    async def stop(self) -> None:
        """Ask all clients to save and end after their current round, or at once where there was none yet."""
        self.stopping = True
        if not self.begun:
            self.meetings.dissolve(("greet",))
            return
        if self.config.federation.mode == "async":
            self._begin_generation(force=True)
        self.news.set()

    async def poll(self, cursor: int) -> dict[str, Any]:
        """Return what the driver shows and writes: figures from number `cursor` on, and where everybody is."""
        state, ledger = self.state, self.state.ledger
        return {
            "rows": ledger.rows_from(cursor),
            "seconds": state.seconds + time.monotonic() - self.began,
            "round_seconds": state.round_seconds,
            "rounds": {name: state.rounds.get(name, 0) for name in self.clients},
            "present": sorted(self.present),
            "finished": sorted(state.finished),
            "traffic": dict(ledger.traffic),
            "refused": dict(ledger.refused),
            "staleness": dict(ledger.staleness),
            "failures": list(ledger.failures),
            "notes": list(self.notes),
            "preparing": dict(self.preparing),
            "measured": {"sigma": state.sigma, "informative_gamma": state.informative_gamma},
        }

    # Before the rounds

    def _settle(self, greetings: dict[str, Greeting]) -> None:
        """Take the median of the clients' widths for σ, unless it is given, and agree on sizes."""
        sigma, self.begun, self.rounds_began = self.config.model.sigma, True, time.monotonic()
        if self.state.sigma is None:
            self.state.sigma = median(one.width for one in greetings.values()) if sigma == "median" else sigma
            if self.config.federation.encryption == "counted":  # keys are sent once, to the target
                for direction in ("up", "down"):
                    self.state.ledger.count_bytes(direction, "keys", len(self.sources) * KEY_BYTES)
        # What most clients say: one with another network is refused, whoever sends first.
        extractor, companion, features = (
            Counter(getattr(one, size) for one in greetings.values()).most_common(1)[0][0]
            for size in ("extractor", "companion", "features")
        )
        self.state.shapes |= {"extractor": (extractor,), "companion": (companion,), "weights": (len(self.clients),)}
        if self.config.model.kernel == "none":
            self.state.shapes |= {"aligner": (features, self.config.model.dim), "mean_embedding": (features,)}

    def _warm(self, step: int, messages: dict[str, Any]) -> Warmth:
        # Imported here: a coordinator that only averages starts seconds sooner without torch.
        from fedrf.federation.warm_start import WarmStart

        if messages.keys() != set(self.clients):
            raise ValueError(f"the warm start needs all clients; only {', '.join(sorted(messages))} took part")
        in_order = {name: messages[name] for name in self.clients}
        if step == 0:
            self.warming = WarmStart(self.config, self.target)
            is_whole = self.config.align.warm_start == "statistics"
            warmth = self.warming.solve(in_order) if is_whole else self.warming.begin(in_order)
        else:
            warmth = self.warming.advance(in_order, step)
        self.basis_shape = warmth.values.shape
        if warmth.done:
            self.state.model.begin_with(warmth.values)
            self.state.informative_gamma = self.warming.informative_gamma
        return warmth

    def _catch_up(self, phase: str = "greet") -> Reply:
        """Where the others are, for a client that comes late or back."""
        parts = self._parts(self.state.model.current, phase)
        self._count_down(parts.items())
        number, closed = self.state.last_closed
        done = number if closed >= PHASES.index("round") else number - 1
        if self.config.federation.mode == "async":
            done = max(self.state.rounds.get(name, 0) for name in self.sources) - 1
        return Reply(parts=parts, round=max(0, done), model_version=self.state.model.version)

    # Rounds

    async def _answer(self, envelope: Envelope) -> Reply:
        sender, state = envelope.sender, self.state
        self.present.add(sender)
        self.begun = True
        accepted, refused = self._accept(envelope.messages, sender, envelope.round)
        if self.config.federation.mode == "sync":
            key = (envelope.round, PHASES.index(envelope.phase))
            if key <= state.last_closed:
                return self._catch_up(envelope.phase)  # the others went on without it
            state.rounds[sender] = envelope.round
            outcome = await self.meetings.attend(key, sender, accepted, self.config.federation.deadline)
        else:
            state.rounds[sender] = max(envelope.round, state.rounds.get(sender, 0))
            self._take_in(envelope, accepted)
            if sender == self.target:
                await self._wait_for_sources(envelope)
                self._begin_generation(force=envelope.phase == "final")
            available = set(state.model.current) if envelope.phase != "ballot" else set()
            outcome = Outcome(available, self.generations.number, self.stopping)
        state.round_seconds = self.earlier_rounds + time.monotonic() - self.rounds_began
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
        self.state.ending = self.state.ending or (envelope.phase == "final" and ready())

    def _expected(self) -> set[str]:
        return self.present - self.state.finished

    def _recheck(self) -> None:
        """Look again who is waited for, after somebody came, left or finished."""
        self.meetings.recheck()
        self.generations.commit_if_complete(self._expected())
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
        Contract(self.clients, self.state.shapes).check(message, sender, number)
        self.state.ledger.count("up", message)

    def _reply(self, envelope: Envelope, accepted: Accepted, outcome: Outcome, refused: tuple[str, ...]) -> Reply:
        """Σℓ of the peers, and each aggregate that the sender is part of; the target gets all."""
        state, is_target = self.state, envelope.sender == self.target
        members = members_of(self.config, self.sources, envelope.round).mean_embedding
        embeddings = state.model.peers(envelope.sender, members) if relayed(accepted) else ()
        changes, delivered = state.model.changes, self.delivered
        news = {kind for kind in PARTS if changes[kind] > delivered[kind]}
        kinds = [kind for kind in PARTS if kind in outcome.aggregated and (kind in (news if is_target else accepted))]
        parts = self._parts(kinds, envelope.phase)
        if is_target:
            delivered.update({kind: changes[kind] - delivered[kind] for kind in parts})
            if (
                envelope.phase == "final"
                and not changes["classifier"]
                and self.config.federation.prediction == "average"
            ):
                state.ledger.note("the target never received a classifier: its accuracy means nothing")
        is_shown = envelope.phase == "ballot" or (self._shows_each and outcome.aggregated)
        ballots = self._whole_ballots() if is_target and is_shown else {}
        for one in embeddings:
            state.ledger.count("down", one)
            for kind, number in one.answered_by.items() if isinstance(one, Ciphertexts) else ():
                state.ledger.count_bytes("up", kind, number)
                state.ledger.count_bytes("down", kind, number)
        for sent in (parts, *ballots.values()):
            self._count_down(sent.items())
        return Reply(
            embeddings,
            parts,
            ballots,
            model_version=state.model.version,
            generation=outcome.generation,
            round=self.config.train.rounds if state.ending and not is_target else envelope.round,
            stop=outcome.stop,
            refused=refused,
        )

    def _parts(self, kinds: Iterable[str], phase: str) -> dict[str, Array]:
        """Return aggregates to load; in the middle of a round nothing that its messages were made with before."""
        current = self.state.model.current
        fixed = PARTS if self.config.align.message in PER_SAMPLE else ("extractor",)
        return {kind: current[kind] for kind in kinds if not (phase == "round" and kind in fixed)}

    @property
    def _shows_each(self) -> bool:
        return self.config.federation.shows == "each"

    def _count_down(self, parts: Any) -> None:
        for kind, values in parts:
            self.state.ledger.count_bytes("down", kind, values.nbytes)

    # Aggregation

    def _close_phase(self, key: Key, entries: dict[str, Accepted]) -> Outcome:
        """Do what a phase of a round is for, when all clients have sent their part (sync)."""
        state, phase, combined = self.state, PHASES[key[1]], set()
        state.last_closed = (key[0], key[1])
        if phase == "ballot":
            self._cast(entries)
        else:
            combined = state.model.combine(entries)
            if self._shows_each and combined:
                self._cast(entries)
        if phase == "round":
            state.model.post(entries)  # only now: the aligners that just came grew with the embeddings before these
        if phase in ("round", "final"):
            self._begin_generation(force=self.stopping or phase == "final")
        return Outcome(combined, self.generations.number, self.stopping)

    def _take_in(self, envelope: Envelope, accepted: Accepted) -> None:
        """Add the messages of one client at once (async)."""
        model = self.state.model
        if envelope.phase == "ballot":
            self._cast({envelope.sender: accepted})
        else:
            if accepted:
                self.state.ledger.staleness[round(model.age(envelope.model_version))] += 1
            members = members_of(self.config, self.sources, envelope.round - 1)  # parts belong to the round before
            model.blend(envelope.sender, accepted, envelope.model_version, members)
        self.news.set()

    def _cast(self, entries: dict[str, Accepted]) -> None:
        for name, accepted in entries.items():
            parts = {kind: message.values for kind, message in accepted.items() if kind in PARTS}
            if name in self.sources and parts:
                self.state.ballots[name] = {**self.state.ballots.get(name, {}), **parts}

    def _whole_ballots(self) -> dict[str, dict[str, Array]]:
        """Return the parts of each source; where they make up networks, of those of which none is missing."""
        needed = {"aligner", "classifier"} | ({"extractor"} if self.config.model.sharing == "averaged" else set())
        there = {name: self.state.ballots[name] for name in self.sources if name in self.state.ballots}
        return {name: parts for name, parts in there.items() if not self._shows_each or needed <= parts.keys()}

    def _begin_generation(self, force: bool) -> None:
        now = time.monotonic()
        self.state.seconds, self.began = self.state.seconds + now - self.began, now
        self.generations.begin(self.state, force)
