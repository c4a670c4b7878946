"""The driver of a run: starts a federation, watches it, restarts what is lost, and writes figures and summary."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from traceback import format_exception
from typing import Any

from fedrf.config.schema import Config
from fedrf.data.domains import clients_of
from fedrf.errors import RunFailedError, reason
from fedrf.experiment.display import Display
from fedrf.experiment.environment import environment
from fedrf.experiment.interrupts import Interrupts
from fedrf.experiment.restarts import Restarts
from fedrf.experiment.results import RunFolder, RunResult
from fedrf.experiment.stored_copy import StoredCopy
from fedrf.experiment.summary import summarise
from fedrf.experiment.tracking import Tracker
from fedrf.federation.checkpoints import ClientFiles, CoordinatorFiles, Version, files_root
from fedrf.federation.liveness import STARTUP_FACTOR
from fedrf.federation.state import number_of_rows
from fedrf.federation.status import Status
from fedrf.ownership import RunTakenOverError
from fedrf.runtime.base import Ended, Federation

POLL_SECONDS = 0.25
Observer = Callable[[list[dict[str, Any]]], bool]


class ClientLostError(RuntimeError):
    """A client was lost without which the others cannot go on: all go back to the last checkpoint."""


class Experiment:
    """One run, whose federation is restarted from the last checkpoint if necessary.

    Parameters
    ----------
    config
        The configuration.
    folder
        The run directory, owned by this process.
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
        self.root = files_root(folder.path, config.track.storage)
        self.files = CoordinatorFiles(self.root)
        self.copy = StoredCopy(folder, self.root)
        self.environment = environment()
        self.attempts = dict.fromkeys(self.clients, 0)
        self.ended: dict[str, tuple[int, float]] = {}  # attempts that were ended, and after how many silent seconds
        self.status = Status()
        self.failures: list[str] = []
        self.restarts = Restarts(config.resources.max_restarts)
        self.stopping = False
        self.next_row = 0
        self.is_copied = True

    def run(self, make: Callable[..., Federation]) -> RunResult:
        """Run to the end; a summary is written after a failure or Ctrl-C too.

        Parameters
        ----------
        make
            Called with the configuration, the sources, the target, a fence for the run directory and the version to
            continue from; starts a federation.
        """
        self.folder.log("started", resume=self.resume, config_hash=self.config.digest, **self.environment)
        with self.copy:
            summary = self._run(make)
            self._write_report()
        return RunResult(self.folder.path, self.config, summary)

    def _run(self, make: Callable[..., Federation]) -> dict[str, Any]:
        """Run to the end and return the summary."""
        tracker: Tracker | None = None
        outcome = "failed"
        try:
            tracker = Tracker(self.config, self.folder.path, self.resume)
            with Display(self.config, self.target) as display:
                outcome = self._run_with_restarts(make, tracker, display)
        except KeyboardInterrupt:
            outcome = "interrupted"
            raise
        except RunTakenOverError as error:
            raise RunFailedError(str(error)) from error
        except Exception as error:
            self._fail(reason(error), traceback="".join(format_exception(error)))
            raise
        finally:
            summary = self._summarise(outcome, tracker)
        return summary

    def _summarise(self, outcome: str, tracker: Tracker | None) -> dict[str, Any]:
        rows = self.folder.rows()
        summary = summarise(self.config, self.sources, outcome, self.status, rows, self.failures)
        summary["environment"] = self.environment
        try:
            self.folder.write_summary(summary)
            self.folder.log(outcome)
        except (RunTakenOverError, OSError):
            if outcome == "finished":
                raise
        if tracker is not None:
            tracker.close(summary)
        return summary

    def _fail(self, failure: str, **details: Any) -> None:
        """Record a failure for the summary and in the log."""
        self.failures.append(failure)
        self.folder.log("failure", text=failure, **details)

    def _write_report(self) -> None:
        """Write report.html; the results are complete without it, so an error is only a warning."""
        try:
            # Imported here, because matplotlib is not needed while the run goes on.
            from fedrf.experiment.report import write_report

            self.folder.owner.fence.check()
            write_report([self.folder.path], self.folder.path / "report.html")
        except Exception as error:
            problem = f"{type(error).__name__}: {reason(error)}"
            text = f"report.html was not written ({problem}); try again with `fedrf report {self.folder.path}`"
            warnings.warn(text, stacklevel=3)

    def _run_with_restarts(self, make: Callable[..., Federation], tracker: Tracker, display: Display) -> str:
        is_resumed = self.resume
        while True:
            version = self._version() if is_resumed else None
            federation = self._place(make, version)
            try:
                self._start(federation, version)
                return self._watch(federation, tracker, display)
            except (ClientLostError, ConnectionError) as error:
                self._fail(str(error))
                if self.stopping:
                    return "interrupted"
                if not self.restarts.allow("all"):
                    limit = f"{self.restarts.limit} restarts within an hour (resources.max_restarts)"
                    raise RunFailedError(f"gave up after {limit}: {error}; see {self.folder.path}") from error
            finally:
                federation.close()
            is_resumed = True

    def _place(self, make: Callable[..., Federation], version: Version | None) -> Federation:
        """Start a federation; if the cluster has lost too much for a restart, the run has failed."""
        try:
            return make(self.config, self.sources, self.target, self.folder.owner.renew_fence(), version)
        except ValueError as error:
            if not any(self.attempts.values()):
                raise
            raise RunFailedError(f"cannot be restarted: {error}; continue with --resume {self.folder.path}") from error

    def _version(self) -> Version | None:
        """Return the newest version to continue from; None if there is none."""
        version = self.files.load()
        for text in version.skipped if version else ():
            self._fail(f"{text}; version {version.number if version else 0} is used instead")
        return version

    def _start(self, federation: Federation, version: Version | None) -> None:
        """Start all clients, from a checkpoint if there is one."""
        saved = version.saved if version else {}
        self.next_row = number_of_rows(version.state) if version else 0
        self.folder.keep_rows(self.next_row)
        self.copy.update(self.next_row, at_once=True)
        for name in self.clients:
            files = ClientFiles(self.root, name)
            files.drop_after(saved.get(name, 0))
            self._start_client(federation, name, saved.get(name))

    def _start_client(self, federation: Federation, name: str, checkpoint: int | None) -> None:
        self.attempts[name] += 1
        federation.call("admit", name, self.attempts[name])
        federation.start(name, self.attempts[name], checkpoint)
        self.folder.log("client started", client=name, attempt=self.attempts[name], checkpoint=checkpoint)

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
                self._end_silent(federation, running)
                if (is_enough or interrupts.wanted) and not self.stopping:
                    self.stopping = True
                    federation.call("stop")
        self._poll(federation, tracker, display)
        is_complete = any(row["client"] == self.target and row.get("final") for row in self.folder.rows())
        return "finished" if is_complete else "interrupted"

    def _end_silent(self, federation: Federation, running: set[str]) -> None:
        """End the processes of clients that show no sign of life; they are then lost, and restarted.

        If a process has no end either, because it has found no place on the cluster, all clients are placed anew.
        """
        patience = STARTUP_FACTOR * self.config.federation.deadline
        for name, seconds in self.status.silent.items():
            attempt, since = self.ended.get(name, (0, 0.0))
            if name not in running or (attempt == self.attempts[name] and seconds < since + patience):
                continue
            if attempt == self.attempts[name]:
                raise ClientLostError(f"{name} was lost: its process neither runs nor ends")
            if federation.end(name):
                self.ended[name] = (self.attempts[name], seconds)
                federation.call("exclude", name)
                self._fail(f"{name} has shown no sign of life for {seconds:.0f} s, and its process is ended")

    def _restart(self, federation: Federation, ended: Ended) -> bool:
        """Restart a lost client without stopping the others; raise if that is not possible."""
        name, error = ended.client, ended.error
        assert error is not None
        if not ended.lost:
            self.folder.log("client failed", client=name, traceback="".join(format_exception(error)))
            log = f"; the traceback is in {self.folder.path / 'run.log'}"
            raise RunFailedError(f"{name} failed: {type(error).__name__}: {reason(error)}{log}") from error
        self.folder.log("client lost", client=name, attempt=self.attempts[name], reason=reason(error))
        if self.config.federation.mode == "sync":
            raise ClientLostError(f"{name} was lost: {reason(error)}")
        if not self.restarts.allow(name):
            limit = f"more than {self.restarts.limit} times within an hour (resources.max_restarts)"
            raise RunFailedError(f"{name} was lost {limit}: {reason(error)}")
        if not federation.call("leave", name, "its process is gone"):
            raise ClientLostError(f"{name} was lost during the warm start: {reason(error)}")
        if self.stopping:
            return False
        self._start_client(federation, name, ClientFiles(self.root, name).newest())
        return True

    def _update_copy(self) -> None:
        """Copy files to the store; what fails is tried again at the next poll, and at the end it fails the run."""
        try:
            self.copy.update(self.next_row)
            self.is_copied = True
        except OSError as error:
            if self.is_copied:
                self._fail(f"not copied for now: {reason(error)}")
            self.is_copied = False

    def _poll(self, federation: Federation, tracker: Tracker, display: Display) -> bool:
        """Record new figures; tell whether the observer wants to stop."""
        # The coordinator keeps rows until they are where a run is continued from.
        known = self.copy.rows if self.copy.is_elsewhere else self.next_row
        self.status = federation.call("poll", known)
        rows = self.status.rows[self.next_row - known :]
        self.folder.owner.fence.check()
        self.folder.append_rows(rows)
        self.next_row += len(rows)
        self._update_copy()
        tracker.log(rows)
        display.update(self.status)
        if self.status.broken:
            raise RunFailedError(self.status.broken)
        return self.observe(rows)
