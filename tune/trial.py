"""One trial: a federated run with one point of the space, on the resources that Ray Tune has reserved for it.

The run has its own thread and reports each evaluation on the target. Client actors are reused by the next trial on the
same resources, because starting them can take longer than a trial. A trial's run directory is named after its
configuration, so that no configuration is run twice, also after a sweep is resumed.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from ray.tune import PlacementGroupFactory, Trainable
from ray.util import get_current_placement_group

from fedrf.adaptation.selection import merit
from fedrf.config.schema import Config
from fedrf.experiment.results import RunFolder, RunResult
from fedrf.experiment.run import run_in
from fedrf.files import write_atomically
from fedrf.runtime.ray import RaySession
from tune.space import Point, config_at

TIME, SCORE = "progress", "score"
INVALID_SCORE = -inf  # for predictions that are not finite, as in `fedrf.adaptation.selection.merit`
STOPPED = "stopped.json"
Metrics = dict[str, Any]  # what a trial reports to Ray Tune


@dataclass(frozen=True)
class SharedSetup:
    """What all trials of a sweep share; computed again when a sweep is resumed, possibly on another machine.

    Attributes
    ----------
    given
        The settings of recipe and call, by sections.
    trials
        The folder of all run directories.
    trial_bundle, bundles, strategy
        The reserved resources: of the trial itself, of each client process, and their placement strategy.
    """

    given: dict[str, Any]
    trials: Path
    trial_bundle: dict[str, float]
    bundles: list[dict[str, float]]
    strategy: str

    def folder(self, point: Point) -> Path:
        """Return the run directory of a point; raise `ValueError` if the point is not a valid configuration."""
        return self.trials / config_at(self.given, point).digest


def run_length(config: Config) -> int:
    """Return the progress of a finished run: its rounds, the steps after them, and the last evaluation."""
    return config.train.rounds + (config.adapt.steps if config.adapt.when == "last" else 0) + 1


def as_metrics(row: Mapping[str, Any], select: str) -> Metrics:
    """Return the metrics of one evaluation on the target; only the score, which needs no labels, affects decisions."""
    progress = int(row["round"] + row.get("step", 0))
    return {TIME: progress, SCORE: merit(row, select), "accuracy": row.get("accuracy")}


def read_metrics(folder: Path, config: Config) -> list[Metrics]:
    """Return the metrics of all evaluations on the target in a run directory, except the final one."""
    target, select = config.data.target, config.track.select
    return [as_metrics(row, select) for row in RunFolder(folder).rows() if _is_evaluation(row, target)]


def save_stop(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Record in a run directory that its trial was stopped early."""
    text = json.dumps({key: metrics.get(key) for key in (TIME, SCORE, "accuracy")})
    write_atomically(folder / STOPPED, lambda path: path.write_text(text))


def _is_evaluation(row: Mapping[str, Any], target: str) -> bool:
    return row["client"] == target and "information" in row and not row.get("final")


class Trial(Trainable):
    """The trainable of Ray Tune; a step is one evaluation. Its configuration holds ``shared`` and ``point``."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """Reserve a bundle for each client process, and one for the trial, which needs no CPU while it waits."""
        shared: SharedSetup = config["shared"]
        return PlacementGroupFactory([shared.trial_bundle, *shared.bundles], shared.strategy)

    def setup(self, config: dict[str, Any]) -> None:
        """Start the run."""
        self._session = RaySession(group=get_current_placement_group())
        self._start_run(config["shared"], config["point"])

    def step(self) -> Metrics:
        """Wait for the next evaluation and return its metrics; raise the run's error if it failed."""
        report: Metrics | BaseException = self._reports.get()
        if isinstance(report, BaseException):
            raise report
        return report

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Stop the run and start another one with the same actors."""
        self._stop_run()
        self._start_run(new_config["shared"], new_config["point"])
        return True

    def cleanup(self) -> None:
        """Stop the run and its actors; the run saves a checkpoint if there is time."""
        self._stop_run()
        self._session.close()

    def _start_run(self, shared: SharedSetup, point: Point) -> None:
        self._stop_requested, self._reports = Event(), SimpleQueue[Any]()
        self._thread = Thread(target=self._run_in_thread, args=(shared, point), daemon=True)
        self._thread.start()

    def _stop_run(self) -> None:
        self._stop_requested.set()
        self._thread.join()

    def _run_in_thread(self, shared: SharedSetup, point: Point) -> None:
        try:
            folder = shared.folder(point)
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / ".lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # a searcher may suggest the same point twice
                self._reports.put(self._run(folder, config_at(shared.given, point)))
        except BaseException as error:
            self._reports.put(error)

    def _run(self, folder: Path, config: Config) -> Metrics:
        """Start or resume the run and return its final metrics; a run that was stopped early is not resumed."""
        if (folder / STOPPED).exists():
            return {**json.loads((folder / STOPPED).read_text()), "done": True}
        result = run_in(config, folder, session=self._session, observe=lambda rows: self._observe(rows, config))
        return _final_metrics(result)

    def _observe(self, rows: list[dict[str, Any]], config: Config) -> bool:
        for row in rows:
            if _is_evaluation(row, config.data.target):
                self._reports.put(as_metrics(row, config.track.select))
        return self._stop_requested.is_set()


def _final_metrics(result: RunResult) -> Metrics:
    summary = result.summary
    return {
        TIME: run_length(result.config),
        SCORE: merit(summary["scores"], result.config.track.select),
        "accuracy": summary["target_accuracy"]["final"],
        "oracle": summary["target_accuracy"]["oracle"],
        "bytes": summary["communication"]["bytes_total"],
        "seconds": summary["seconds"]["total"],
        "finished": result.finished,
        "done": True,
    }
