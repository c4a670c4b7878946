"""A Ray Tune callback that prints a line for each trial that ends."""

from __future__ import annotations

import sys
import time
from typing import Any

from ray.tune import Callback

from fedrf.experiment.display import percent
from tune.results import format_point
from tune.trial import SCORE, TIME


class ProgressCallback(Callback):
    """Prints to standard error. Ray Tune saves it with the sweep; its state is numbers only."""

    def __init__(self, total: int, length: int) -> None:
        self.total, self.length = total, length

    def setup(self, *_: Any, **__: Any) -> None:
        """Start the clock, also when a sweep is resumed."""
        self.started = time.monotonic()

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        """Show the progress of the running trials on a terminal."""
        if sys.stderr.isatty():
            running = [other for other in trials if other.status == "RUNNING"]
            progress = ", ".join(f"{other.last_result.get(TIME, 0)}/{self.length}" for other in running)
            print(f"\r\033[K{len(running)} running: {progress}", end="", file=sys.stderr, flush=True)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Print the result of a trial that finished or was stopped early."""
        result = trial.last_result
        status = "finished" if result.get("finished") else f"stopped early, at {result[TIME]}/{self.length},"
        numbers = f"score {result[SCORE]:.4f}, accuracy {percent(result.get('accuracy'))}"
        self._print(trials, trial, f"{status} with {numbers}: {format_point(trial.config['point'])}")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Print which trial failed."""
        self._print(trials, trial, f"failed: {format_point(trial.config['point'])}")

    def _print(self, trials: list[Any], trial: Any, text: str) -> None:
        ended = sum(other.is_finished() for other in trials if other is not trial) + 1
        clear = "\r\033[K" if sys.stderr.isatty() else ""
        seconds = time.monotonic() - self.started
        print(f"{clear}[{ended}/{self.total}, {seconds:.0f} s] {text}", file=sys.stderr, flush=True)
