"""A configuration in, a run directory out: starts a federation, watches over it, and writes down what it came to."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrf.config.loader import load_config
from fedrf.config.schema import WEIGHTS, Config, ModelConfig
from fedrf.data.registry import clients_of, locate_all, settle
from fedrf.errors import RunFailedError
from fedrf.experiment.display import Display
from fedrf.experiment.interrupts import Interrupts
from fedrf.experiment.results import RunFolder, RunResult, cautions, summarise
from fedrf.experiment.tracking import Tracker, check_tracking
from fedrf.federation.checkpoints import ClientFiles, CoordinatorFiles
from fedrf.runtime.base import Ended, Federation
from fedrf.runtime.local import LocalFederation

if TYPE_CHECKING:
    from fedrf.runtime.ray import RaySession

POLL_SECONDS = 0.25
Observer = Callable[[list[dict[str, Any]]], bool]


class ClientLostError(RuntimeError):
    """In sync mode nobody goes on without a client: all go back to the last checkpoint."""


def run(
    recipe: str | Path | None = None,
    overrides: Mapping[str, Any] | Iterable[str] = (),
    *,
    out: str | Path | None = None,
    seed: int | None = None,
    local: bool = False,
    address: str | None = None,
    resume: str | Path | None = None,
    session: RaySession | None = None,
    observe: Observer | None = None,
) -> RunResult:
    """Train a federation and return what came of it; the same as `fedrf run`.

    Parameters
    ----------
    recipe
        The name of a recipe or a YAML file; None for the defaults.
    overrides
        ``{"train.rounds": 20}`` or ``["train.rounds=20"]``, over the recipe.
    out
        The run directory; default a new one below ``runs/``.
    local
        Threads in this process instead of Ray actors.
    address
        A Ray cluster; default $RAY_ADDRESS, else a Ray of its own on this machine.
    resume
        A run directory to continue from its last checkpoint, with the configuration that it holds.
    session
        A `fedrf.runtime.ray.RaySession` whose actors are used, and kept for the next run.
    observe
        Is given new figures, several times a second; a true answer stops the run as Ctrl-C does.
    """
    if resume is not None:
        folder, config = RunFolder.open(Path(resume))
        done = folder.read_summary()
        if done is not None and done["status"] == "finished":
            return RunResult(folder.path, config, done)
    else:
        config = settled_config(recipe, overrides, seed=seed)
        if local or not (session or address or os.environ.get("RAY_ADDRESS")):
            check_files(config)
        for caution in cautions(config):
            warnings.warn(caution, stacklevel=2)
        folder = RunFolder.create(config, Path(out) if out is not None else None)
    experiment = Experiment(config, folder, resume is not None, observe)
    if local:
        return experiment.run(lambda *arguments: LocalFederation(*arguments))
    from fedrf.runtime.ray import RayFederation, RaySession

    with RaySession(address) if session is None else nullcontext(session) as used:
        return experiment.run(lambda *arguments: RayFederation(used, *arguments))


def run_on(
    config: Config,
    folder: Path,
    *,
    local: bool = False,
    session: RaySession | None = None,
    observe: Observer | None = None,
) -> RunResult:
    """Run to the end in a directory, from where an earlier run there has come to."""
    if (folder / "config.yaml").exists():
        return run(resume=folder, local=local, session=session, observe=observe)
    plain = config.model_dump(mode="json")
    return run(None, plain, out=folder, local=local, session=session, observe=observe)


def settled_config(
    recipe: str | Path | None, overrides: Mapping[str, Any] | Iterable[str] = (), *, seed: int | None = None
) -> Config:
    """Return a configuration that means the same in every process, checked as far as no file is needed."""
    config = load_config(recipe, overrides)
    config = config if seed is None else load_config(None, config.model_dump(mode="json") | {"seed": seed})
    config = config.model_copy(update={"data": settle(config.data), "model": _absolute(config.model)})
    _check_names(config)
    check_tracking(config)
    return config


def check_files(config: Config) -> None:
    """Look for the files of a run on this machine, before anything is started; on a cluster only clients can tell."""
    locate_all(config.data)
    if config.model.weights not in WEIGHTS and not Path(config.model.weights).is_file():
        raise ValueError(f"model.weights={config.model.weights}: no such file; allowed too: {', '.join(WEIGHTS)}")


def _absolute(model: ModelConfig) -> ModelConfig:
    """Name a file of weights so that processes with another working directory find it."""
    is_file = model.weights not in WEIGHTS
    return model.model_copy(update={"weights": str(Path(model.weights).expanduser().absolute())}) if is_file else model


def _check_names(config: Config) -> None:
    sources, target = clients_of(config.data)
    for key, named in (("federation.delays", config.federation.delays), ("resources.nodes", config.resources.nodes)):
        strangers = set(named) - {*sources, target}
        if strangers:
            known = ", ".join((*sources, target))
            raise ValueError(f"{key} names {', '.join(sorted(strangers))}; the clients are {known}")


class Experiment:
    """One run: its federation, begun again from the last checkpoint where that is needed."""

    def __init__(self, config: Config, folder: RunFolder, resume: bool, observe: Observer | None = None) -> None:
        self.config, self.folder, self.resume = config, folder, resume
        self.observe = observe or (lambda rows: False)
        self.sources, self.target = clients_of(config.data)
        self.clients = (*self.sources, self.target)
        self.files = CoordinatorFiles(folder.path)
        self.attempts = dict.fromkeys(self.clients, 0)
        self.progress: dict[str, Any] = {}
        self.failures: list[str] = []
        self.losses: Counter[str] = Counter()
        self.stopping = False
        self.cursor = 0

    def run(self, make: Callable[..., Federation]) -> RunResult:
        """Run to the end; after a failure or Ctrl-C, the summary so far is written all the same."""
        tracker = Tracker(self.config, self.folder.path, self.resume)
        status = "failed"
        try:
            with Display(self.config, self.target) as display:
                status = self._until_done(make, tracker, display)
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            rows = self.folder.rows()
            summary = summarise(self.config, self.sources, status, self.progress, rows, self.failures)
            self.folder.write_summary(summary)
            tracker.close(summary)
        # Imported here: matplotlib is of no use while a run goes on.
        from fedrf.experiment.report import write_report

        write_report([self.folder.path], self.folder.path / "report.html")
        return RunResult(self.folder.path, self.config, summary)

    def _until_done(self, make: Callable[..., Federation], tracker: Tracker, display: Display) -> str:
        for restarts in range(self.config.resources.max_restarts + 1):
            resume = (self.resume or restarts > 0) and self.files.newest > 0
            federation = make(self.config, self.sources, self.target, self.folder.path, resume)
            try:
                return self._watch(federation, resume, tracker, display)
            except (ClientLostError, ConnectionError) as error:
                self.failures.append(str(error))
                if self.stopping:
                    return "interrupted"
            finally:
                federation.close()
        raise RunFailedError(f"gave up after {restarts} restarts: {self.failures[-1]}; see {self.folder.path}")

    def _watch(self, federation: Federation, resume: bool, tracker: Tracker, display: Display) -> str:
        """Start all clients and stay with them until the last has ended."""
        state, saved = self.files.load() if resume else (None, {})
        self.cursor = state.ledger.first_row if state else 0
        self.folder.keep_rows(self.cursor)
        for name in self.clients:
            self.attempts[name] += 1
            checkpoint = ClientFiles(self.folder.path, name).path(saved[name]) if name in saved else None
            federation.start(name, self.attempts[name], checkpoint)
        left = set(self.clients)
        with Interrupts() as interrupts:
            while left:
                for ended in federation.wait(POLL_SECONDS):
                    left.discard(ended.client)
                    if ended.error is not None and self._again(federation, ended):
                        left.add(ended.client)
                enough = self._poll(federation, tracker, display)
                if (enough or interrupts.wanted) and not self.stopping:
                    self.stopping = True
                    federation.call("stop")
        self._poll(federation, tracker, display)
        came_through = any(row["client"] == self.target and row.get("final") for row in self.folder.rows())
        return "finished" if came_through else "interrupted"

    def _again(self, federation: Federation, ended: Ended) -> bool:
        """Start a client again that was lost, without stopping the others; raise where that cannot be."""
        name = ended.client
        reason = str(ended.error).strip().splitlines()[0] if str(ended.error).strip() else repr(ended.error)
        if not ended.lost:
            raise RunFailedError(f"{name} failed: {type(ended.error).__name__}: {reason}") from ended.error
        if self.config.federation.mode == "sync":
            raise ClientLostError(f"{name} was lost: {reason}")
        self.losses[name] += 1
        if self.losses[name] > self.config.resources.max_restarts:
            raise RunFailedError(f"{name} was lost {self.losses[name]} times: {reason}")
        if self.stopping:
            return False
        federation.call("leave", name, "its process is gone")
        self.attempts[name] += 1
        federation.start(name, self.attempts[name], ClientFiles(self.folder.path, name).newest())
        return True

    def _poll(self, federation: Federation, tracker: Tracker, display: Display) -> bool:
        """Take in what is new; tell whether the observer has seen enough."""
        self.progress = federation.call("poll", self.cursor)
        rows = self.progress["rows"]
        self.folder.append_rows(rows)
        self.cursor += len(rows)
        tracker.log(rows)
        display.update(self.progress)
        return self.observe(rows)
