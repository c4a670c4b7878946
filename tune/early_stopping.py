"""Early stopping by asynchronous successive halving (ASHA), on a score that needs no target labels."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from ray.tune.schedulers import ASHAScheduler

from fedrf.config.schema import Config
from tune.trial import SCORE, TIME, SharedSetup, read_metrics, run_length, save_stop

REDUCTION_FACTOR = 3  # of the trials that reach a rung, the best third continues


class ResumableASHA(ASHAScheduler):
    """ASHA that restores the scores of earlier trials from their run directories when a sweep is resumed.

    Ray Tune restores trials and the searcher, but not the state of its scheduler.
    """

    def __init__(self, config: Config, longest_interval: int) -> None:
        self.config, length = config, run_length(config)
        # Before the first average of classifiers the target has none, and its score is meaningless.
        grace = min(max(length // REDUCTION_FACTOR**2, longest_interval, 1), length)
        # In the second half there is little time left to save, and the last stage optimises the score itself.
        last = max(grace, length // 2)
        super().__init__(
            TIME, max_t=last, grace_period=grace, reduction_factor=REDUCTION_FACTOR, stop_last_trials=False
        )

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Add a trial with the evaluations that its run directory already has."""
        super().on_trial_add(tune_controller, trial)
        bracket = self._trial_info[trial.trial_id]
        with suppress(ValueError):  # an invalid point has no evaluations; its trial will fail
            for metrics in read_metrics(_folder(trial), self.config):
                bracket.on_result(trial, metrics[TIME], metrics[SCORE])

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Decide, and save which trial was stopped: Ray Tune saves its own state only every ten seconds."""
        decision = str(super().on_trial_result(tune_controller, trial, result))
        if decision == self.STOP and not result.get("finished"):
            save_stop(_folder(trial), result)
        return decision


def _folder(trial: Any) -> Path:
    shared: SharedSetup = trial.config["shared"]
    return shared.folder(trial.config["point"])
