"""Rounds in async mode: sources never wait. The target waits for the fastest source, to have something new to learn."""

from __future__ import annotations

import asyncio

from fedrf.config.schema import Config
from fedrf.federation.aggregate import Accepted
from fedrf.federation.checkpoint_versions import CheckpointVersions
from fedrf.federation.closed_form import solve, store_statistics
from fedrf.federation.replies import PhaseResult
from fedrf.federation.roster import Roster
from fedrf.federation.source_models import store_source_models
from fedrf.federation.state import State
from fedrf.protocol.envelope import Envelope
from fedrf.protocol.schedule import all_save_after, participants_of


class AsyncRounds:
    """The coordinator's side of rounds in which clients do not wait for each other."""

    def __init__(self, config: Config, roster: Roster, state: State, versions: CheckpointVersions) -> None:
        self.config, self.roster, self.state, self.versions = config, roster, state, versions
        self._changed = asyncio.Event()

    async def answer(self, envelope: Envelope, accepted: Accepted) -> PhaseResult:
        """Add the messages of one client and return at once, unless the target has to wait for a source."""
        sender, rounds = envelope.sender, self.state.rounds
        rounds[sender] = max(envelope.round, rounds.get(sender, 0))
        self._add(envelope, accepted)
        if sender == self.roster.target:
            await self._wait_for_sources(envelope)
            self._finish_phase(envelope.phase)
        sends_parts = envelope.phase not in ("statistics", "source_models")
        averaged = set(self.state.aggregate.current) if sends_parts else set()
        return PhaseResult(averaged, self.versions.number, self.roster.stopping, envelope.round)

    def _finish_phase(self, phase: str) -> None:
        """Compute what only the target receives, and begin a checkpoint version if it is time."""
        if phase == "statistics":
            solve(self.config, self.state, self.roster.sources, self.roster.target)
        all_save = all_save_after(phase, self.config, self.roster.stopping)
        if all_save or phase not in ("final", "statistics"):
            self.versions.begin(force=all_save)

    def _add(self, envelope: Envelope, accepted: Accepted) -> None:
        aggregate, sender = self.state.aggregate, envelope.sender
        if envelope.phase == "source_models":
            store_source_models(self.state, {sender: accepted}, self.roster.sources)
        elif envelope.phase == "statistics":
            store_statistics(self.state, {sender: accepted}, self.roster.sources)
        else:
            # A client may not claim a newer model than it has received.
            version = min(envelope.model_version, self.state.delivered.get(sender, aggregate.version))
            if accepted:
                self.state.ledger.staleness[round(aggregate.age(version))] += 1
            # The parts in an envelope were trained in the round before.
            chosen = participants_of(self.config, self.roster.sources, envelope.round - 1)
            aggregate.add(sender, accepted, version, chosen, self.state.ledger.suspect)
        self._changed.set()

    async def _wait_for_sources(self, envelope: Envelope) -> None:
        """Hold the target until the fastest source has reached its round; at the end, until all have sent theirs."""
        while not (is_ready := self._is_ready(envelope)) and not self.roster.stopping:
            self._changed.clear()
            await self._changed.wait()
        self.state.ending = self.state.ending or (envelope.phase == "final" and is_ready)

    def _is_ready(self, envelope: Envelope) -> bool:
        arrived = {"source_models": set(self.state.source_models), "statistics": set(self.state.statistics)}
        if envelope.phase in arrived:  # of all sources: one that was lost is being restarted, and sends it then
            return set(self.roster.sources) <= arrived[envelope.phase]
        return self.furthest_round() >= envelope.round

    def furthest_round(self) -> int:
        """Return the largest round that a source has reached."""
        return max(self.state.rounds.get(name, 0) for name in self.roster.sources)

    def completed_rounds(self) -> int:
        """Return how many rounds the fastest source has completed."""
        return self.furthest_round() - 1

    def recheck(self) -> None:
        """Check again whether the target can go on."""
        self._changed.set()

    def stop(self) -> None:
        """Let clients end: begin a version, and wake the target."""
        self.versions.begin(force=True)
        self._changed.set()
