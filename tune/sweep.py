"""A sweep as Ray Tune runs it: trials in reserved room, early stopping, and what to do after a kill."""

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
from fedrf.data.registry import clients_of
from fedrf.errors import reason
from fedrf.experiment.interrupts import Interrupts
from fedrf.runtime.ray import RaySession
from tune.announcer import Announcer
from tune.halving import Halving
from tune.outcome import Outcome
from tune.plan import SAMPLES, Plan, import_optuna
from tune.scout import measure
from tune.space import varied
from tune.trial import NOTHING_TOLD, SCORE, TIME, Ground, Trial, length


def run_sweep(
    plan: Plan, folder: Path, *, resume: bool = False, address: str | None = None, concurrent: int | None = None
) -> tuple[list[Outcome], bool]:
    """Run all trials, or those that a killed sweep still lacks; return them, and whether all came to their end."""
    folder = folder.resolve()
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # see _Interrupts
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # which would be on standard output, whatever the verbosity
    with RaySession(address) as session:
        if plan.needs_measuring:
            print("Measuring where γ and σ matter ...", file=sys.stderr, flush=True)
            plan = plan.model_copy(
                update={"measured": measure(plan.given, "model.sigma" in plan.space, folder / "scout", session)}
            )
            plan.save(folder)
        space = {"ground": _ground(plan, folder, session), "point": _points(plan)}
        tuner = _restored(space, folder) if resume and _has_state(folder) else _new(plan, space, folder, concurrent)
        with _Interrupts() as interrupts:
            trials = tuner.fit()._experiment_analysis.trials
    in_order = sorted(trials, key=lambda trial: int(trial.experiment_tag.partition("_")[0]))  # resuming changes it
    outcomes = [_outcome(number, trial) for number, trial in enumerate(in_order, 1)]
    return outcomes, not interrupts.wanted


class _Interrupts(Interrupts):
    """Tells Ray Tune, in the one way it takes from others, that it shall save and end."""

    def __enter__(self) -> Interrupts:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until Ray Tune listens to it
        return super().__enter__()

    def _note(self, number: int, frame: FrameType | None) -> None:
        super()._note(number, frame)
        os.kill(os.getpid(), signal.SIGUSR1)


def _ground(plan: Plan, folder: Path, session: RaySession) -> Ground:
    """Work out what a trial reserves, and make sure that there is room for one: a sweep without would wait for ever."""
    config = plan.config
    sources, target = clients_of(config.data)
    wanted = session.check_resources((*sources, target), config.resources)
    shares = {"resources.cpus_per_client": wanted.cpus, "resources.gpus_per_client": wanted.gpus}
    group = config.track.group or f"sweep-{folder.name}"
    return Ground(
        read_given(None, {**plan.given, **shares, "track.group": group}),
        folder / "trials",
        _beside_the_driver() if config.resources.placement != "apart" else {},
        wanted.bundles,
        wanted.strategy,
    )


def _points(plan: Plan) -> Any:
    """Return all points for Ray Tune to try, or domains for a searcher to suggest them from."""
    if plan.search != "bayes":
        return grid_search(plan.points())
    first = plan.default_point
    return {key: one.including(first[key]).domain() for key, one in plan.settled.items()}


def _new(plan: Plan, space: dict[str, Any], folder: Path, concurrent: int | None) -> Any:
    config, count = plan.config, plan.samples or SAMPLES
    searching: dict[str, Any] = {}
    if plan.search == "bayes":
        first = {f"point/{key}": value for key, value in plan.default_point.items()}
        searching = {
            "search_alg": import_optuna()(points_to_evaluate=[first], seed=config.seed),
            "num_samples": count,
        }
    else:
        count = len(space["point"]["grid_search"])
    longest = max(value for value in _intervals(plan) if isinstance(value, int))
    return Tuner(
        Trial,
        param_space=space,
        tune_config=TuneConfig(
            metric=SCORE,
            mode="max",
            scheduler=Halving(config, longest) if plan.early_stopping else None,
            max_concurrent_trials=concurrent,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
            **searching,
        ),
        run_config=RunConfig(
            name="tune",
            storage_path=str(folder),
            callbacks=[Announcer(count, length(config))],
            # Runs keep checkpoints of their own.
            checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
            failure_config=FailureConfig(max_failures=1),
            verbose=0,
        ),
    )


def _beside_the_driver() -> dict[str, float]:
    """Return a bundle that puts trials on this node, so that their run directories are here, whatever the cluster."""
    return {f"node:{get_node_ip_address()}": 0.001}


def _has_state(folder: Path) -> bool:
    return (folder / "tune" / "tuner.pkl").exists() and any((folder / "tune").glob("experiment_state-*.json"))


def _restored(space: dict[str, Any], folder: Path) -> Any:
    return Tuner.restore(str(folder / "tune"), Trial, resume_errored=True, param_space=space)


def _outcome(number: int, trial: Any) -> Outcome:
    result = trial.last_result or {}
    error = trial.get_pickled_error() if trial.status == "ERROR" else None
    if error is not None:
        status = "failed"
    elif result.get("finished"):
        status = "finished"
    else:
        status = "stopped early" if result.get("done") else "unfinished"
    ground, point = trial.config["ground"], trial.config["point"]
    try:
        config, folder = varied(ground.given, point), str(ground.folder(point))
    except ValueError:  # values that do not go together, as a searcher may suggest them
        config, folder = varied(ground.given, {}), ""
    score = result.get(SCORE)
    return Outcome(
        number,
        status,
        point,
        result.get(TIME, 0),
        length(config),
        None if score == NOTHING_TOLD else score,
        result.get("accuracy"),
        result.get("bytes"),
        result.get("seconds"),
        folder,
        None if error is None else reason(getattr(error, "cause", None) or error),
    )


def _intervals(plan: Plan) -> list[Any]:
    key = "federation.classifier_interval"
    values = [1, plan.config.federation.classifier_interval, *(plan.space[key].grid() if key in plan.space else ())]
    return [plan.config.train.rounds if value == "last" else value for value in values]
