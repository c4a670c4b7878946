"""A configuration in, a run directory out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrf.config.registry import REGISTRIES
from fedrf.config.schema import Config
from fedrf.data.domains import clients_of, found_here
from fedrf.experiment.disk import check_writable
from fedrf.experiment.driver import Experiment, Observer
from fedrf.experiment.resolve import check_files, resolve_config, warnings_about
from fedrf.experiment.results import RunFolder, RunResult
from fedrf.experiment.stored_copy import fetch_newer, fetch_run
from fedrf.runtime.base import Federation
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
        A run directory, or its URL in `track.storage`, to continue from its last checkpoint, with its configuration.
    session
        A `fedrf.runtime.ray.RaySession` whose actors are used, and kept for the next run.
    observe
        Receives new figures several times a second; the run stops as after Ctrl-C when it returns true.
    """
    new = None if out is None else Path(out)
    if resume is not None:
        is_stored = "://" in str(resume)
        folder = RunFolder.open(fetch_run(str(resume), Path("runs")) if is_stored else Path(resume))
        _check_working_directory(folder)
        config = folder.config()
        if not folder.is_finished:
            check_writable("--resume", folder.path)
            if not is_stored:
                fetch_newer(folder, config.track.storage)
        if folder.is_finished:
            return RunResult(folder.path, config, folder.read_summary() or {})
    else:
        config = resolve_config(recipe, overrides, seed=seed)
        if new is None:
            check_writable("--out", Path("runs"))
        else:
            RunFolder.check_unused(new)
    is_simulated = config.simulation.enabled
    if is_simulated and address:
        raise ValueError(f"simulation.enabled=true runs in one process: --address is not allowed; got {address}")
    is_here = local or is_simulated or not (session or address or os.environ.get("RAY_ADDRESS"))
    if is_here:  # clients read files of this machine
        if resume is not None:
            config = config.model_copy(update={"data": found_here(config.data)})
        check_files(config)
    if resume is None:
        for text in warnings_about(config):
            warnings.warn(text, stacklevel=2)
    with ExitStack() as stack:
        if resume is not None:
            stack.enter_context(folder.claim())
        federation: Callable[..., Federation] = LocalFederation
        if is_simulated:
            from fedrf.runtime.simulated import SimulatedFederation

            federation = SimulatedFederation
        elif not local:
            from fedrf.runtime.ray import RayFederation, RaySession

            used = session or stack.enter_context(RaySession(address))
            sources, target = clients_of(config)
            used.prepare((*sources, target), config.resources)
            if not is_here and resume is None:
                used.check_files(config)
            federation = partial(RayFederation, used)
        # Last, so that what cannot start leaves nothing behind.
        folder = folder if resume is not None else stack.enter_context(RunFolder.create(config, new))
        return Experiment(config, folder, resume is not None, observe).run(federation)


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


def _check_working_directory(folder: RunFolder) -> None:
    """Raise a `ValueError` if the configuration names code that would be imported from the run directory itself."""
    content = folder.plain_config()
    names = {key: _value(content, key) for key in REGISTRIES}
    outside = [f"{key}={name}" for key, name in names.items() if isinstance(name, str) and ":" in name]
    if outside and Path.cwd().is_relative_to(folder.path):
        raise ValueError(f"--resume: {outside[0]} would be imported from the run directory; call from another folder")


def _value(content: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key such as `model.extractor`."""
    value: Any = content
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
