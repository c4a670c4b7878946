"""A configuration in, a run directory out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrf.config.schema import Config
from fedrf.experiment.driver import Experiment, Observer
from fedrf.experiment.resolve import check_files, resolve_config, warnings_about
from fedrf.experiment.results import RunFolder, RunResult
from fedrf.runtime.local import LocalFederation

if TYPE_CHECKING:
    from fedrf.runtime.ray import RaySession


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
    """Train a federation and return the result; the same as `fedrf run`.

    Parameters
    ----------
    recipe
        The name of a recipe or a YAML file; None for the defaults.
    overrides
        ``{"train.rounds": 20}`` or ``["train.rounds=20"]``, which replace values of the recipe.
    out
        The run directory; default a new one below ``runs/``.
    seed
        The same as the key ``seed``.
    local
        Use threads of this process instead of Ray actors.
    address
        A Ray cluster; default $RAY_ADDRESS, else a new Ray instance on this machine.
    resume
        A run directory to continue from its last checkpoint, with its configuration.
    session
        A `fedrf.runtime.ray.RaySession` whose actors are used, and kept for the next run.
    observe
        Receives new figures several times a second; the run stops as after Ctrl-C when it returns true.
    """
    if resume is not None:
        folder = RunFolder.open(Path(resume))
        config, done = folder.config(), folder.read_summary()
        if done is not None and done["status"] == "finished":
            return RunResult(folder.path, config, done)
        folder.claim()
    else:
        is_here = local or not (session or address or os.environ.get("RAY_ADDRESS"))
        config = _checked_config(recipe, overrides, seed, is_here)
        folder = RunFolder.create(config, Path(out) if out is not None else None)
    with folder:
        experiment = Experiment(config, folder, resume is not None, observe)
        if local:
            return experiment.run(LocalFederation)
        from fedrf.runtime.ray import RayFederation, RaySession

        with RaySession(address) if session is None else nullcontext(session) as used:
            return experiment.run(partial(RayFederation, used))


def _checked_config(
    recipe: str | Path | None, overrides: Mapping[str, Any] | Iterable[str], seed: int | None, is_here: bool
) -> Config:
    """Return the configuration, after checking files on this machine and warning about suspicious settings."""
    config = resolve_config(recipe, overrides, seed=seed)
    if is_here:
        check_files(config)
    for text in warnings_about(config):
        warnings.warn(text, stacklevel=3)
    return config


def run_in(
    config: Config,
    folder: Path,
    *,
    local: bool = False,
    session: RaySession | None = None,
    observe: Observer | None = None,
) -> RunResult:
    """Run to the end in a directory; an earlier run in it is continued."""
    if (folder / "config.yaml").exists():
        return run(resume=folder, local=local, session=session, observe=observe)
    plain = config.model_dump(mode="json")
    return run(None, plain, out=folder, local=local, session=session, observe=observe)
