"""The coordinator: relays Σℓ, averages W, C and extractors, counts bytes, and decides when clients save.

A plain class whose calls are coroutines; `fedrf.runtime` runs it in an actor or in a thread. A client makes one call a
round, with Σℓ of this round and the W and C of the step before: random features do not depend on W, so nothing is
stale. The target's Σℓ goes to the sources that sent theirs, the sources' go to the target, and nothing goes from source
to source. An average goes to the clients whose part is in it, and to the target. Calls of clients arrive as bytes
(`fedrf.protocol.wire`).

`SyncRounds` and `AsyncRounds` are the rounds; `Reception` checks what arrives, and `Replies` builds the answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fedrf.config.schema import Config
from fedrf.federation.aggregate import Aggregate
from fedrf.federation.async_rounds import AsyncRounds
from fedrf.federation.checkpoint_versions import CheckpointVersions
from fedrf.federation.checkpoints import CoordinatorFiles, Version
from fedrf.federation.clock import Clock
from fedrf.federation.liveness import Liveness, SupersededError
from fedrf.federation.reception import Reception, call_number
from fedrf.federation.replies import Replies
from fedrf.federation.roster import Roster
from fedrf.federation.startup import Startup
from fedrf.federation.state import State
from fedrf.federation.status import Status
from fedrf.federation.sync_rounds import SyncRounds
from fedrf.federation.uploads import Uploads
from fedrf.protocol.attendance import Attendance
from fedrf.protocol.compression import codec_of
from fedrf.protocol.envelope import Envelope, Reply
from fedrf.protocol.message import BadMessageError
from fedrf.protocol.messages import Greeting, Metrics, Product, Statistics
from fedrf.protocol.place import Place
from fedrf.protocol.sizes import Sizes

if TYPE_CHECKING:
    from fedrf.federation.warm_start import WarmStartReply

MAX_NOTES = 100


class Coordinator:
    """The server side of one federation.

    Parameters
    ----------
    config
        The configuration.
    sources, target
        The clients.
    files
        Where checkpoints are.
    version
        The checkpoint to continue from.
    now
        Tells the time in seconds.
    liveness
        Who is alive; default by signs of life and the time of this machine.
    """

    def __init__(
        self,
        config: Config,
        sources: Sequence[str],
        target: str,
        files: CoordinatorFiles,
        version: Version | None = None,
        now: Callable[[], float] = time.monotonic,
        liveness: Liveness | None = None,
    ) -> None:
        self.config, self.roster = config, Roster(tuple(sources), target)
        self.attendance = Attendance(config, self.roster.sources, target)
        aggregate = Aggregate(config, self.roster.sources, target)
        if version is None:
            self.state = State(aggregate, Sizes.of(config, len(self.roster.clients)))
        else:
            self.state = State.unpack(version.state, aggregate)
        self.clock = Clock(self.state, now)
        number, saved = (files.newest, dict(version.saved)) if version else (0, {})
        self.versions = CheckpointVersions(
            files, config.federation.checkpoint_seconds, number, saved, self.clock.snapshot
        )
        self.liveness = liveness or Liveness(self.roster.clients, config.federation.deadline)
        self.reception = Reception(
            self.roster,
            config.train.rounds,
            self.state,
            self.liveness,
            self.attendance,
            is_resumed=version is not None,
            codec=codec_of(config.federation.compression),
        )
        self.replies = Replies(config, self.roster, self.state, self.attendance)
        self.uploads = Uploads(files, target)
        self.startup = Startup(config, self.roster, self.state, now)
        self.rounds: SyncRounds | AsyncRounds
        if config.federation.mode == "sync":
            leave, attendance = self._leave_late, self.attendance
            self.rounds = SyncRounds(config, self.roster, self.state, self.versions, leave, attendance)
        else:
            self.rounds = AsyncRounds(config, self.roster, self.state, self.versions)
        self._answers: dict[str, tuple[tuple[int, int, int], asyncio.Task[Reply]]] = {}
        self._places: dict[str, Place] = {}
        self._preparing: dict[str, float] = {}
        self._notes: dict[str, None] = {}

    # Calls of clients

    async def call(self, content: bytes | memoryview) -> Any:
        """Answer a call of a client, which is one of the following methods.

        Raises
        ------
        BadMessageError
            If the bytes are damaged, too many or no call.
        SupersededError
            If the sender is a process that the driver has replaced.
        """
        call = self.reception.open(content)
        try:
            if call.name in ("exchange", "warm_start") and not self.roster.begun:
                raise BadMessageError(f"{call.sender} calls for a round before all clients have greeted")
            if call.name in ("greet", "warm_start", "exchange", "report"):  # their messages name the sender
                return await getattr(self, call.name)(*call.arguments)
            return await getattr(self, call.name)(call.sender, *call.arguments)
        except BadMessageError as error:
            self.state.ledger.refuse(call.name, str(error), call.sender)
            raise

    async def beat(self, sender: str) -> None:
        """Do nothing: that the call has arrived is a sign of life."""

    async def beat_for(self, sender: str, attempts: dict[str, int]) -> None:
        """Note signs of life of clients that share a process with the sender."""
        if self.config.resources.clients_per_actor == 1:
            raise BadMessageError(f"{sender} shows signs of life of others, with resources.clients_per_actor=1")
        for name, attempt in attempts.items():
            if self.liveness.attempts.get(name) == attempt:
                self.liveness.hear(name, attempt)

    async def prepare(self, sender: str, share: float) -> bool:
        """Record the share of samples that a client has prepared; tell whether to stop."""
        self._preparing[sender] = share
        if share >= 1:
            del self._preparing[sender]
        return self.roster.stopping

    async def place(self, sender: str, node: str, device: str, model: str, memory: int) -> None:
        """Record where a client runs."""
        place = Place(node, device, model, memory)
        place.check(sender)
        self._places[sender] = place

    async def note(self, sender: str, text: str) -> None:
        """Record a note for the summary, once if several clients send it."""
        if len(self._notes) < MAX_NOTES:
            self._notes.setdefault(text)

    async def count_samples(self, sender: str, nbytes: int) -> None:
        """Count, once, the samples that were moved to a client with pooled data."""
        if sender not in self.state.counted:
            self.state.counted.add(sender)
            self.state.ledger.count_bytes("up", "samples", nbytes)

    async def greet(self, greeting: Greeting) -> tuple[float, Reply]:
        """Wait for all clients and return σ; a client that comes back gets the current round and model at once."""
        self.reception.check(greeting, greeting.sender, 0)
        self._expect(greeting.sender)
        self._preparing.pop(greeting.sender, None)
        if not await self.startup.greet(greeting):
            return 0.0, Reply(stop=True)
        assert self.state.sigma is not None
        return self.state.sigma, self._catch_up(greeting.sender)

    async def warm_start(self, step: int, message: Statistics | Product) -> WarmStartReply:
        """Do one step of the warm start of W."""
        self.reception.check(message, message.sender, 0)
        return await self.startup.warm_start(step, message)

    async def exchange(self, envelope: Envelope) -> Reply:
        """Answer what a client sends in one phase of a round; a repeated call gets the same answer."""
        newest, _ = self._answers.get(envelope.sender, ((0, 0, 0), None))
        reason = self.reception.reason_against(envelope, newest)
        if reason is not None:
            self.state.ledger.refuse("envelope", reason, envelope.sender)
            return Reply(round=envelope.round, refused=(reason,))
        if call_number(envelope) > newest:
            self._answers[envelope.sender] = (call_number(envelope), asyncio.ensure_future(self._answer(envelope)))
        return await asyncio.shield(self._answers[envelope.sender][1])

    async def _answer(self, envelope: Envelope) -> Reply:
        if envelope.sender not in self.roster.present:
            self._expect(envelope.sender)
        self.state.aggregate.note_held(envelope.sender, envelope.held)
        accepted, refused = self.reception.accept(envelope.messages, envelope.sender, envelope.round)
        result = await self.rounds.answer(envelope, accepted)
        if envelope.attempt != self.liveness.attempts[envelope.sender]:  # this answer has no receiver
            raise SupersededError(f"{envelope.sender}: attempt {envelope.attempt} was replaced while it waited")
        if result is None:  # the others went on without this client
            return self._catch_up(envelope.sender, envelope.phase)
        self.clock.update_rounds(self.startup.rounds_began)
        reply = self.replies.build(envelope, accepted, result, refused)
        self.reception.allow(envelope.sender, reply.round)
        return reply

    def _expect(self, client: str) -> None:
        """Wait for a client, also if the others went on without it."""
        self.roster.present.add(client)
        self.roster.finished.discard(client)
        self.rounds.recheck()

    def _catch_up(self, client: str, phase: str = "greet") -> Reply:
        """Return the current round and model, for a client that joins late or again."""
        reply = self.replies.catch_up(client, self.rounds.completed_rounds(), phase)
        self.reception.allow(client, reply.round)
        return reply

    async def report(self, metrics: Metrics) -> bool:
        """Record figures outside of a round; tell whether to stop."""
        self.reception.accept((metrics,), metrics.sender, metrics.round)
        return self.roster.stopping

    async def saved(self, sender: str, version: int) -> int:
        """Record that a client has saved a checkpoint version; return the oldest that it must keep."""
        newest = self.versions.number + self.attendance.is_sampled  # a client that skips rounds saves for the next one
        if not 1 <= version <= newest:
            raise BadMessageError(f"{sender} has saved version {version}; the newest is {newest}")
        self.versions.note_saved(sender, version)
        await self.versions.commit_if_complete(self.roster.expected())
        oldest = self.versions.oldest_needed(sender)
        self.uploads.prune(sender, oldest)
        return oldest

    async def upload(self, sender: str, name: str, start: int, size: int, digest: str, piece: Any) -> None:
        """Write a piece of a file of a client that does not see the run directory."""
        await asyncio.to_thread(self.uploads.add, sender, name, start, size, digest, piece)

    async def download(self, sender: str, name: str, start: int) -> tuple[int, bytes]:
        """Return the size of a file of a client, and a piece of it."""
        return await asyncio.to_thread(self.uploads.read, sender, name, start)

    async def finish(self, sender: str) -> None:
        """Record that a client has done all its rounds."""
        self.roster.finished.add(sender)
        await self._recheck()

    # Calls of the driver

    async def admit(self, client: str, attempt: int) -> None:
        """Expect calls of a client's new process, and answer older ones no longer."""
        self.liveness.admit(client, attempt)

    async def exclude(self, client: str) -> None:
        """Answer no call of a client until it is admitted again: the driver ends its process."""
        self.liveness.exclude(client)

    async def leave(self, sender: str, reason: str) -> bool:
        """Go on without a client until it greets again; before round 1, wait for it.

        Return whether the others can go on: the warm start of W needs all clients.
        """
        if not self.roster.begun:
            self.state.ledger.record_failure(f"{sender} left before round 1: {reason}")
            return True
        if self.startup.needs_all:
            return False
        self.roster.present.discard(sender)
        self.state.ledger.record_failure(f"{sender} left in round {self.state.rounds.get(sender, 0)}: {reason}")
        await self._recheck()
        return True

    async def _leave_late(self, sender: str, reason: str) -> None:
        """Go on without a client that is late but alive; the driver ends and restarts one that is silent."""
        if self.liveness.is_late(sender):
            await self.leave(sender, reason)

    async def _recheck(self) -> None:
        """Check again who is waited for, after a client came, left or finished."""
        self.startup.recheck()
        self.rounds.recheck()
        await self.versions.commit_if_complete(self.roster.expected())

    async def stop(self) -> None:
        """Ask all clients to save and stop after their current round, or at once if none has begun."""
        self.roster.stopping = True
        if self.roster.begun:
            self.rounds.stop()
        else:
            self.startup.release()

    async def poll(self, first_row: int) -> Status:
        """Return the state of the federation, with figures from number `first_row` on."""
        state, ledger = self.state, self.state.ledger
        return Status(
            rows=ledger.rows_from(first_row),
            seconds=self.clock.seconds,
            round_seconds=state.round_seconds,
            rounds={name: state.rounds.get(name, 0) for name in self.roster.clients},
            present=frozenset(self.roster.present),
            finished=frozenset(self.roster.finished),
            preparing=dict(self._preparing),
            places=dict(self._places),
            traffic=dict(ledger.traffic),
            refused=dict(ledger.refused),
            staleness=dict(ledger.staleness),
            silent=self.liveness.silent(),
            broken=self.reception.broken,
            suspicions={name: dict(reasons) for name, reasons in ledger.suspicions.items()},
            failures=list(ledger.failures),
            notes=list(self._notes),
            measured={
                "sigma": state.sigma,
                "informative_gamma": state.informative_gamma,
                "ridge": state.ridge,
                "source_weights": state.source_weights or None,
            },
        )
