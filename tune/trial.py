"""One trial: a federation with one point of the space, in the room that Ray Tune has reserved for it.

The run goes on in a thread of its own and hands over each evaluation at the target. Client actors stay for the next
trial in the same room: starting them takes longer than many a trial. A trial's run directory is named after its
configuration, so that whatever happens to the sweep, no configuration is ever run twice.
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
from fedrf.experiment.run import run_on
from fedrf.files import write_atomically
from fedrf.runtime.ray import RaySession
from tune.space import Point, varied

TIME, SCORE = "progress", "score"
NOTHING_TOLD = -inf  # the score of predictions that are not numbers, as `fedrf.adaptation.selection.merit` has it
STOPPED = "stopped.json"
Result = dict[str, Any]


@dataclass(frozen=True)
class Ground:
    """What all trials of a sweep have in common; given anew when one is resumed, perhaps elsewhere.

    Attributes
    ----------
    given
        What recipe and call say, by sections.
    trials
        The folder of all run directories.
    place, bundles, strategy
        What is reserved: for the trial itself, for each client process, and how they are spread.
    """

    given: dict[str, Any]
    trials: Path
    place: dict[str, float]
    bundles: list[dict[str, float]]
    strategy: str

    def folder(self, point: Point) -> Path:
        """Return the run directory for a point; a `ValueError` if its values do not go together."""
        return self.trials / varied(self.given, point).digest


def length(config: Config) -> int:
    """Return the progress of a finished run: its rounds, the steps after them, and the last evaluation."""
    return config.train.rounds + (config.adapt.steps if config.adapt.when == "last" else 0) + 1


def as_result(row: Mapping[str, Any], select: str) -> Result:
    """Return what one evaluation at the target says; only the score, which needs no labels, decides anything."""
    progress = int(row["round"] + row.get("step", 0))
    return {TIME: progress, SCORE: merit(row, select), "accuracy": row.get("accuracy")}


def evaluations(folder: Path, config: Config) -> list[Result]:
    """Return all evaluations at the target that a run directory has, but for the last."""
    target, select = config.data.target, config.track.select
    return [as_result(row, select) for row in RunFolder(folder).rows() if _is_evaluation(row, target)]


def note_stop(folder: Path, result: Mapping[str, Any]) -> None:
    """Write down in a run directory that the sweep has seen enough of it."""
    text = json.dumps({key: result.get(key) for key in (TIME, SCORE, "accuracy")})
    write_atomically(folder / STOPPED, lambda path: path.write_text(text))


def _is_evaluation(row: Mapping[str, Any], target: str) -> bool:
    return row["client"] == target and "information" in row and not row.get("final")


class Trial(Trainable):
    """What Ray Tune runs: a step is an evaluation. Its configuration is a `ground` and a `point`."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """Reserve a bundle for each client process; the trial itself only waits, and needs no more than its place."""
        ground: Ground = config["ground"]
        return PlacementGroupFactory([ground.place, *ground.bundles], ground.strategy)

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the run."""
        self._session = RaySession(group=get_current_placement_group())
        self._begin(config["ground"], config["point"])

    def step(self) -> Result:
        """Wait for the next evaluation; raise what the run has raised."""
        outcome: Result | BaseException = self._outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """End the run and begin another with the same actors."""
        self._end()
        self._begin(new_config["ground"], new_config["point"])
        return True

    def cleanup(self) -> None:
        """End the run and its actors; it saves a checkpoint if it is given the time."""
        self._end()
        self._session.close()

    def _begin(self, ground: Ground, point: Point) -> None:
        self._enough, self._outcomes = Event(), SimpleQueue[Any]()
        self._thread = Thread(target=self._work, args=(ground, point), daemon=True)
        self._thread.start()

    def _end(self) -> None:
        self._enough.set()
        self._thread.join()

    def _work(self, ground: Ground, point: Point) -> None:
        try:
            folder = ground.folder(point)
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / ".lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # searchers may suggest a point twice
                self._outcomes.put(self._run(folder, varied(ground.given, point)))
        except BaseException as error:
            self._outcomes.put(error)

    def _run(self, folder: Path, config: Config) -> Result:
        """Run, or run on, to the end; what the sweep has seen enough of stays as it is."""
        if (folder / STOPPED).exists():
            return {**json.loads((folder / STOPPED).read_text()), "done": True}
        return _final(run_on(config, folder, session=self._session, observe=lambda rows: self._observe(rows, config)))

    def _observe(self, rows: list[dict[str, Any]], config: Config) -> bool:
        for row in rows:
            if _is_evaluation(row, config.data.target):
                self._outcomes.put(as_result(row, config.track.select))
        return self._enough.is_set()


def _final(result: RunResult) -> Result:
    summary = result.summary
    return {
        TIME: length(result.config),
        SCORE: merit(summary["scores"], result.config.track.select),
        "accuracy": summary["target_accuracy"]["final"],
        "oracle": summary["target_accuracy"]["oracle"],
        "bytes": summary["communication"]["bytes_total"],
        "seconds": summary["seconds"]["total"],
        "finished": result.finished,
        "done": True,
    }
