"""Early stopping by asynchronous successive halving, on a score that needs no labels of the target."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from ray.tune.schedulers import ASHAScheduler

from fedrf.config.schema import Config
from tune.trial import SCORE, TIME, Ground, evaluations, length, note_stop

REDUCTION = 3  # of the trials that reach a rung, the best third goes on


class Halving(ASHAScheduler):
    """ASHA that, in a resumed sweep, learns from the run directories what earlier trials had at each rung.

    Ray Tune restores trials and the searcher, but not what its scheduler knew.
    """

    def __init__(self, config: Config, slowest_interval: int) -> None:
        self.config, whole = config, length(config)
        # Before the first average of classifiers the target has none, and its score says nothing.
        grace = min(max(whole // REDUCTION**2, slowest_interval, 1), whole)
        # In the second half there is little left to save, and at its end the last stage works on the score itself.
        last = max(grace, whole // 2)
        super().__init__(TIME, max_t=last, grace_period=grace, reduction_factor=REDUCTION, stop_last_trials=False)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Take a trial in, with what it has done already."""
        super().on_trial_add(tune_controller, trial)
        bracket = self._trial_info[trial.trial_id]
        with suppress(ValueError):  # a point whose values do not go together has done nothing, and will fail
            for result in evaluations(_folder(trial), self.config):
                bracket.on_result(trial, result[TIME], result[SCORE])

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Decide, and write down who was stopped: Ray Tune saves its own state only every ten seconds."""
        decision = str(super().on_trial_result(tune_controller, trial, result))
        if decision == self.STOP and not result.get("finished"):
            note_stop(_folder(trial), result)
        return decision


def _folder(trial: Any) -> Path:
    ground: Ground = trial.config["ground"]
    return ground.folder(trial.config["point"])
