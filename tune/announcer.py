"""A line for each trial that ends, while the others go on."""

from __future__ import annotations

import sys
import time
from typing import Any

from ray.tune import Callback

from fedrf.experiment.display import percent
from tune.outcome import describe
from tune.trial import SCORE, TIME


class Announcer(Callback):
    """Writes to standard error. Ray Tune keeps it with the sweep, so that it holds nothing but numbers."""

    def __init__(self, total: int, length: int) -> None:
        self.total, self.length = total, length

    def setup(self, *_: Any, **__: Any) -> None:
        """Begin, perhaps again."""
        self.began = time.monotonic()

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        """Show on a terminal how far the trials at work are."""
        if sys.stderr.isatty():
            running = [one for one in trials if one.status == "RUNNING"]
            places = ", ".join(f"{one.last_result.get(TIME, 0)}/{self.length}" for one in running)
            print(f"\r\033[K{len(running)} at work: {places}", end="", file=sys.stderr, flush=True)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Tell what a trial came to, and how it was ended."""
        result = trial.last_result
        how = "finished" if result.get("finished") else f"stopped early, at {result[TIME]}/{self.length},"
        figures = f"score {result[SCORE]:.4f}, accuracy {percent(result.get('accuracy'))}"
        self._say(trials, trial, f"{how} with {figures}: {describe(trial.config['point'])}")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        """Tell which trial failed."""
        self._say(trials, trial, f"failed: {describe(trial.config['point'])}")

    def _say(self, trials: list[Any], trial: Any, text: str) -> None:
        ended = sum(one.is_finished() for one in trials if one is not trial) + 1
        clear = "\r\033[K" if sys.stderr.isatty() else ""
        seconds = time.monotonic() - self.began
        print(f"{clear}[{ended}/{self.total}, {seconds:.0f} s] {text}", file=sys.stderr, flush=True)
