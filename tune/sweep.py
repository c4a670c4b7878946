"""A sweep with Ray Tune: trials on reserved resources, early stopping, and resuming after a kill."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from ray.tune import CheckpointConfig, FailureConfig, RunConfig, TuneConfig, Tuner, grid_search
from ray.util import get_node_ip_address

from fedrf.config.loader import read_given
from fedrf.data.domains import clients_of
from fedrf.errors import reason
from fedrf.experiment.interrupts import Interrupts
from fedrf.runtime.ray import RaySession
from tune.early_stopping import ResumableASHA
from tune.measurement import measure_ranges
from tune.plan import DEFAULT_SAMPLES, SweepPlan, import_optuna
from tune.progress import ProgressCallback
from tune.results import TrialResult
from tune.space import config_at
from tune.trial import INVALID_SCORE, SCORE, TIME, SharedSetup, Trial, run_length


def run_sweep(
    plan: SweepPlan, folder: Path, *, resume: bool = False, concurrent: int | None = None
) -> tuple[list[TrialResult], bool]:
    """Run all trials, or the remaining ones of a resumed sweep; return their results, and False if interrupted."""
    folder = folder.resolve()
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # see _TuneInterrupts
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # it prints to standard output at any verbosity
    with RaySession() as session:
        if plan.needs_measuring:
            print("Measuring the ranges of γ and σ ...", file=sys.stderr, flush=True)
            measured = measure_ranges(plan.given, "model.sigma" in plan.space, folder / "scout", session)
            plan = plan.model_copy(update={"measured": measured})
            plan.save(folder)
        space = {"shared": _shared_setup(plan, folder, session), "point": _points(plan)}
        is_saved = resume and _has_state(folder)
        tuner = _restore_tuner(space, folder) if is_saved else _make_tuner(plan, space, folder, concurrent)
        with _TuneInterrupts() as interrupts:
            trials = tuner.fit()._experiment_analysis.trials
    in_order = sorted(trials, key=lambda trial: int(trial.experiment_tag.partition("_")[0]))  # resuming changes it
    results = [_result(number, trial) for number, trial in enumerate(in_order, 1)]
    return results, not interrupts.wanted


class _TuneInterrupts(Interrupts):
    """Forwards an interrupt to Ray Tune as SIGUSR1, on which it saves its state and stops."""

    def __enter__(self) -> Interrupts:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until Ray Tune installs its handler
        return super().__enter__()

    def _record(self, number: int, frame: FrameType | None) -> None:
        super()._record(number, frame)
        os.kill(os.getpid(), signal.SIGUSR1)


def _shared_setup(plan: SweepPlan, folder: Path, session: RaySession) -> SharedSetup:
    """Return what all trials share; raise `ValueError` if the resources of one trial do not fit, instead of waiting."""
    config = plan.config
    sources, target = clients_of(config)
    required = session.check_resources((*sources, target), config.resources)
    shares = {"resources.cpus_per_client": required.cpus, "resources.gpus_per_client": required.gpus}
    group = config.track.group or f"sweep-{folder.name}"
    return SharedSetup(
        read_given(None, {**plan.given, **shares, "track.group": group}),
        folder / "trials",
        _this_node() if config.resources.placement != "apart" else {},
        required.bundles,
        required.strategy,
    )


def _this_node() -> dict[str, float]:
    """Return a bundle that places trials on this node, so that their run directories are here on any cluster."""
    return {f"node:{get_node_ip_address()}": 0.001}


def _points(plan: SweepPlan) -> Any:
    """Return all points for Ray Tune, or the domains from which a searcher suggests points."""
    if plan.search != "bayes":
        return grid_search(plan.points())
    first = plan.default_point
    return {key: parameter.including(first[key]).domain() for key, parameter in plan.resolved_space.items()}


def _make_tuner(plan: SweepPlan, space: dict[str, Any], folder: Path, concurrent: int | None) -> Tuner:
    config = plan.config
    is_grid = plan.search != "bayes"
    count = len(space["point"]["grid_search"]) if is_grid else plan.samples or DEFAULT_SAMPLES
    return Tuner(
        Trial,
        param_space=space,
        tune_config=TuneConfig(
            metric=SCORE,
            mode="max",
            scheduler=ResumableASHA(config, _longest_interval(plan)) if plan.early_stopping else None,
            max_concurrent_trials=concurrent,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
            **({} if is_grid else {"search_alg": _optuna_search(plan), "num_samples": count}),
        ),
        run_config=RunConfig(
            name="tune",
            storage_path=str(folder),
            callbacks=[ProgressCallback(count, run_length(config))],
            # Runs write their own checkpoints.
            checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
            failure_config=FailureConfig(max_failures=1),
            verbose=0,
        ),
    )


def _optuna_search(plan: SweepPlan) -> Any:
    first = {f"point/{key}": value for key, value in plan.default_point.items()}
    return import_optuna()(points_to_evaluate=[first], seed=plan.config.seed)


def _longest_interval(plan: SweepPlan) -> int:
    """Return the largest T_C of all trials in rounds."""
    key = "federation.classifier_interval"
    values = [1, plan.config.federation.classifier_interval, *(plan.space[key].grid() if key in plan.space else ())]
    intervals = [plan.config.train.rounds if value == "last" else value for value in values]
    return max(interval for interval in intervals if isinstance(interval, int))


def _has_state(folder: Path) -> bool:
    return (folder / "tune" / "tuner.pkl").exists() and any((folder / "tune").glob("experiment_state-*.json"))


def _restore_tuner(space: dict[str, Any], folder: Path) -> Tuner:
    try:
        return Tuner.restore(str(folder / "tune"), Trial, resume_errored=True, param_space=space)
    except (ImportError, AttributeError):  # the pickled state names classes of this package
        raise ValueError(
            f"--resume: the sweep in {folder} is from another version of fedrf; start a new one with another --out"
        ) from None


def _result(number: int, trial: Any) -> TrialResult:
    metrics = trial.last_result or {}
    error = trial.get_pickled_error() if trial.status == "ERROR" else None
    shared, point = trial.config["shared"], trial.config["point"]
    try:
        config, folder = config_at(shared.given, point), str(shared.folder(point))
    except ValueError:  # a searcher may suggest an invalid point
        config, folder = config_at(shared.given, {}), ""
    score = metrics.get(SCORE)
    return TrialResult(
        number=number,
        status="failed" if error is not None else _status(metrics),
        point=point,
        progress=metrics.get(TIME, 0),
        length=run_length(config),
        score=None if score == INVALID_SCORE else score,
        accuracy=metrics.get("accuracy"),
        bytes=metrics.get("bytes"),
        seconds=metrics.get("seconds"),
        folder=folder,
        error=None if error is None else reason(getattr(error, "cause", None) or error),
    )


def _status(metrics: dict[str, Any]) -> str:
    if metrics.get("finished"):
        return "finished"
    return "stopped early" if metrics.get("done") else "unfinished"
