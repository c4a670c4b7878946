"""The driver of a run: starts a federation, watches it, restarts what is lost, and writes figures and summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from traceback import format_exception
from typing import Any

from fedrf.config.schema import Config
from fedrf.data.domains import clients_of
from fedrf.errors import RunFailedError, reason
from fedrf.experiment.display import Display
from fedrf.experiment.interrupts import Interrupts
from fedrf.experiment.results import RunFolder, RunResult
from fedrf.experiment.summary import summarise
from fedrf.experiment.tracking import Tracker
from fedrf.federation.checkpoints import ClientFiles, CoordinatorFiles
from fedrf.federation.status import Status
from fedrf.runtime.base import Ended, Federation

POLL_SECONDS = 0.25
Observer = Callable[[list[dict[str, Any]]], bool]


class ClientLostError(RuntimeError):
    """A client was lost in sync mode, in which all clients go back to the last checkpoint."""


class Experiment:
    """One run, whose federation is restarted from the last checkpoint if necessary.

    Parameters
    ----------
    config
        The configuration.
    folder
        The run directory.
    resume
        Whether to continue from the last checkpoint.
    observe
        Receives new figures several times a second; the run stops as after Ctrl-C when it returns true.
    """

    def __init__(self, config: Config, folder: RunFolder, resume: bool, observe: Observer | None = None) -> None:
        self.config, self.folder, self.resume = config, folder, resume
        self.observe = observe or (lambda rows: False)
        self.sources, self.target = clients_of(config)
        self.clients = (*self.sources, self.target)
        self.files = CoordinatorFiles(folder.path)
        self.attempts = dict.fromkeys(self.clients, 0)
        self.status = Status()
        self.failures: list[str] = []
        self.times_lost: Counter[str] = Counter()
        self.stopping = False
        self.next_row = 0

    def run(self, make: Callable[..., Federation]) -> RunResult:
        """Run to the end; a summary is written after a failure or Ctrl-C too."""
        tracker = Tracker(self.config, self.folder.path, self.resume)
        outcome = "failed"
        try:
            with Display(self.config, self.target) as display:
                outcome = self._run_with_restarts(make, tracker, display)
        except KeyboardInterrupt:
            outcome = "interrupted"
            raise
        finally:
            rows = self.folder.rows()
            summary = summarise(self.config, self.sources, outcome, self.status, rows, self.failures)
            self.folder.write_summary(summary)
            tracker.close(summary)
        # Imported here, because matplotlib is not needed while the run goes on.
        from fedrf.experiment.report import write_report

        write_report([self.folder.path], self.folder.path / "report.html")
        return RunResult(self.folder.path, self.config, summary)

    def _run_with_restarts(self, make: Callable[..., Federation], tracker: Tracker, display: Display) -> str:
        for restarts in range(self.config.resources.max_restarts + 1):
            resume = (self.resume or restarts > 0) and self.files.newest > 0
            federation = make(self.config, self.sources, self.target, self.folder.path, resume)
            try:
                self._start(federation, resume)
                return self._watch(federation, tracker, display)
            except (ClientLostError, ConnectionError) as error:
                self.failures.append(str(error))
                if self.stopping:
                    return "interrupted"
            finally:
                federation.close()
        raise RunFailedError(f"gave up after {restarts} restarts: {self.failures[-1]}; see {self.folder.path}")

    def _start(self, federation: Federation, resume: bool) -> None:
        """Start all clients, from the last valid checkpoint if there is one."""
        state, saved = self.files.load() if resume else (None, {})
        self.next_row = state.ledger.first_row if state else 0
        self.folder.keep_rows(self.next_row)
        for name in self.clients:
            self.attempts[name] += 1
            checkpoint = ClientFiles(self.folder.path, name).path(saved[name]) if name in saved else None
            federation.start(name, self.attempts[name], checkpoint)

    def _watch(self, federation: Federation, tracker: Tracker, display: Display) -> str:
        """Watch the clients until the last one has ended; return the status of the run."""
        running = set(self.clients)
        with Interrupts() as interrupts:
            while running:
                for ended in federation.wait(POLL_SECONDS):
                    running.discard(ended.client)
                    if ended.error is not None and self._restart(federation, ended):
                        running.add(ended.client)
                is_enough = self._poll(federation, tracker, display)
                if (is_enough or interrupts.wanted) and not self.stopping:
                    self.stopping = True
                    federation.call("stop")
        self._poll(federation, tracker, display)
        is_complete = any(row["client"] == self.target and row.get("final") for row in self.folder.rows())
        return "finished" if is_complete else "interrupted"

    def _restart(self, federation: Federation, ended: Ended) -> bool:
        """Restart a lost client without stopping the others; raise if that is not possible."""
        name, error = ended.client, ended.error
        assert error is not None
        if not ended.lost:
            self.folder.log("".join(format_exception(error)))
            log = f"; the traceback is in {self.folder.path / 'run.log'}"
            raise RunFailedError(f"{name} failed: {type(error).__name__}: {reason(error)}{log}") from error
        if self.config.federation.mode == "sync":
            raise ClientLostError(f"{name} was lost: {reason(error)}")
        self.times_lost[name] += 1
        if self.times_lost[name] > self.config.resources.max_restarts:
            raise RunFailedError(f"{name} was lost {self.times_lost[name]} times: {reason(error)}")
        if self.stopping:
            return False
        federation.call("leave", name, "its process is gone")
        self.attempts[name] += 1
        federation.start(name, self.attempts[name], ClientFiles(self.folder.path, name).newest())
        return True

    def _poll(self, federation: Federation, tracker: Tracker, display: Display) -> bool:
        """Record new figures; tell whether the observer wants to stop."""
        self.status = federation.call("poll", self.next_row)
        rows = self.status.rows
        self.folder.append_rows(rows)
        self.next_row += len(rows)
        tracker.log(rows)
        display.update(self.status)
        return self.observe(rows)
