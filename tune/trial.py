"""One trial: a federation with one point of the space, in the room that Ray Tune has reserved for it.

The run goes on in a thread of its own and hands over each evaluation at the target. Client actors stay for the next
trial in the same room: starting them takes longer than many a trial. A trial's run directory is named after its
configuration, so that whatever happens to the sweep, no configuration is ever run twice.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from ray.tune import PlacementGroupFactory, Trainable
from ray.util import get_current_placement_group

from fedrf.checkpoints import write_atomically
from fedrf.config import Config
from fedrf.experiment import run
from fedrf.results import RunFolder, RunResult
from fedrf.runtime import RaySession
from tune.space import Point, varied

TIME, SCORE = "progress", "score"
STOPPED = "stopped.json"
Result = dict[str, Any]


def length(config: Config) -> int:
    """Return the progress of a finished run: its rounds, the steps after them, and the last evaluation."""
    return config.train.rounds + (config.adapt.steps if config.adapt.when == "last" else 0) + 1


def as_result(row: Mapping[str, Any]) -> Result:
    """Return what one evaluation at the target says; only the score, which needs no labels, decides anything."""
    progress = int(row["round"] + row.get("step", 0))
    return {TIME: progress, SCORE: row["information"], "accuracy": row.get("accuracy")}


def evaluations(folder: Path, target: str) -> list[Result]:
    """Return all evaluations at the target that a run directory has, but for the last."""
    return [as_result(row) for row in RunFolder(folder).rows() if _is_evaluation(row, target)]


def note_stop(folder: Path, result: Mapping[str, Any]) -> None:
    """Write down in a run directory that the sweep has seen enough of it."""
    text = json.dumps({key: result.get(key) for key in (TIME, SCORE, "accuracy")})
    write_atomically(folder / STOPPED, lambda path: path.write_text(text))


def _is_evaluation(row: Mapping[str, Any], target: str) -> bool:
    return row["client"] == target and "information" in row and not row.get("final")


class Trial(Trainable):
    """What Ray Tune runs: a step is an evaluation.

    The configuration has `given` (the recipe), `point`, `trials` (the folder of all run directories), `place`,
    `bundles` and `strategy` (what is reserved).
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """Reserve a bundle for each client process; the trial itself only waits, and needs no more than its place."""
        return PlacementGroupFactory([config["place"], *config["bundles"]], config["strategy"])

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the run."""
        self._session = RaySession(group=get_current_placement_group())
        self._begin(config["given"], config["point"], Path(config["trials"]))

    def step(self) -> Result:
        """Wait for the next evaluation; raise what the run has raised."""
        outcome: Result | BaseException = self._outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """End the run and begin another with the same actors."""
        self._end()
        self._begin(new_config["given"], new_config["point"], Path(new_config["trials"]))
        return True

    def cleanup(self) -> None:
        """End the run, which saves a checkpoint, and its actors."""
        self._end()
        self._session.close()

    def _begin(self, given: dict[str, Any], point: Point, trials: Path) -> None:
        self._enough, self._outcomes = Event(), SimpleQueue[Any]()
        self._thread = Thread(target=self._work, args=(varied(given, point), trials), daemon=True)
        self._thread.start()

    def _end(self) -> None:
        self._enough.set()
        self._thread.join()

    def _work(self, config: Config, trials: Path) -> None:
        folder = trials / config.digest
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / STOPPED).exists():
            self._outcomes.put(json.loads((folder / STOPPED).read_text()) | {"done": True})
            return
        try:
            with (folder / ".lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # searchers may suggest a point twice
                is_begun = (folder / "config.yaml").exists()
                start: dict[str, Any] = {"resume": folder} if is_begun else {"out": folder}
                result = run(
                    None,
                    () if is_begun else config.model_dump(mode="json"),
                    session=self._session,
                    observe=lambda rows: self._observe(rows, config.data.target),
                    **start,
                )
            self._outcomes.put(_final(result))
        except BaseException as error:
            self._outcomes.put(error)

    def _observe(self, rows: list[dict[str, Any]], target: str) -> bool:
        for row in rows:
            if _is_evaluation(row, target):
                self._outcomes.put(as_result(row))
        return self._enough.is_set()


def _final(result: RunResult) -> Result:
    summary = result.summary
    return {
        TIME: length(result.config),
        SCORE: summary["target_information"],
        "accuracy": summary["target_accuracy"]["final"],
        "oracle": summary["target_accuracy"]["oracle"],
        "bytes": summary["communication"]["bytes_total"],
        "seconds": summary["seconds"]["total"],
        "finished": result.finished,
        "done": True,
    }
