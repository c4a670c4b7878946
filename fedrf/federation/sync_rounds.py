"""Rounds in sync mode: a call returns when all clients have made it. The same seed gives the same bits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.federation.aggregate import Accepted
from fedrf.federation.barrier import Barrier, Key
from fedrf.federation.checkpoint_versions import CheckpointVersions
from fedrf.federation.closed_form import solve, store_statistics
from fedrf.federation.replies import PhaseResult
from fedrf.federation.roster import Roster
from fedrf.federation.source_models import store_source_models
from fedrf.federation.state import State
from fedrf.protocol.attendance import Attendance
from fedrf.protocol.envelope import PHASES, Envelope
from fedrf.protocol.schedule import all_save_after


class SyncRounds:
    """The coordinator's side of rounds in which clients wait for each other."""

    def __init__(
        self,
        config: Config,
        roster: Roster,
        state: State,
        versions: CheckpointVersions,
        leave: Callable[[str, str], Awaitable[None]],
        attendance: Attendance,
    ) -> None:
        self.config, self.roster, self.state, self.versions = config, roster, state, versions
        self.attendance = attendance
        self._barrier = Barrier(self._expected, self._close, leave, config.federation.deadline)
        self._turns: dict[int, asyncio.Future[None]] = {}  # of rounds for which sources that skip some wait

    async def answer(self, envelope: Envelope, accepted: Accepted) -> PhaseResult | None:
        """Wait for the other clients and return the result of the phase; None if they went on without this one."""
        key = (envelope.round, PHASES.index(envelope.phase))
        if key <= self.state.last_closed:
            return None
        if not await self._has_turn(envelope.round):
            return PhaseResult(set(), self.versions.number, stop=True, round=self.completed_rounds())
        self.state.rounds[envelope.sender] = envelope.round
        result: PhaseResult = await self._barrier.wait(key, envelope.sender, accepted)
        return result

    async def _has_turn(self, number: int) -> bool:
        """Wait until a round has begun, if the caller skips some before it; false if the run stops before that.

        Without a deadline: the round may be far ahead.
        """
        while self.attendance.is_sampled and max(0, self.completed_rounds()) < number - 1:
            if self.roster.stopping:
                return False
            turn = self._turns.setdefault(number, asyncio.get_running_loop().create_future())
            await asyncio.shield(turn)
        return True

    def _expected(self, key: Key) -> set[str]:
        """Return the clients that the others wait for in a phase of a round."""
        number, position = key
        return self.roster.expected() & self.attendance.expected(number, PHASES[position])

    def _close(self, key: Key, entries: dict[str, Accepted]) -> PhaseResult:
        """Aggregate the messages of all clients in one phase of a round."""
        number, position = key
        state, phase = self.state, PHASES[position]
        averaged: set[str] = set()
        state.last_closed = (number, position)
        if phase == "statistics":
            store_statistics(state, entries, self.roster.sources)
            solve(self.config, state, self.roster.sources, self.roster.target)
        elif phase != "source_models":
            averaged = state.aggregate.combine(entries, state.ledger.suspect)
        if phase == "source_models" or (averaged and METHODS.find(self.config.method).shows_sources):
            store_source_models(state, entries, self.roster.sources)
        if phase == "round":
            # After averaging: these aligners were trained with the embeddings of the round before.
            state.aggregate.replace_embeddings(entries)
        self.versions.changed.update(entries)
        all_save = all_save_after(phase, self.config, self.roster.stopping)
        if all_save or phase == "round":
            savers = self.versions.changed if self.attendance.is_sampled else None
            self.versions.begin(self.roster.stopping or all_save, savers)
        self._end_waits(number + 1 if phase == "round" else number)
        return PhaseResult(averaged, self.versions.number, self.roster.stopping, number)

    def _end_waits(self, number: int) -> None:
        """Let clients go on that wait for a round that has begun."""
        for waiting in [waiting for waiting in self._turns if waiting <= number]:
            self._turns.pop(waiting).set_result(None)

    def completed_rounds(self) -> int:
        """Return how many rounds are over."""
        number, position = self.state.last_closed
        return number if position >= PHASES.index("round") else number - 1

    def recheck(self) -> None:
        """Check again whether all expected clients have arrived."""
        self._barrier.recheck()

    def stop(self) -> None:
        """Let clients end: the reply of the current round tells them to, and a version begins with it.

        Those that skip it have saved, and end at once.
        """
        self._end_waits(self.config.train.rounds + 1)
