"""Jobs that are federated runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from fedrf.config.schema import Config
from fedrf.data.domains import clients_of
from fedrf.errors import RunFailedError
from fedrf.experiment.resolve import resolve_config
from fedrf.experiment.run import run_in
from fedrf.paper.plan import Job
from fedrf.protocol.messages import PARTS

if TYPE_CHECKING:
    from fedrf.runtime.ray import RaySession

START_SECONDS = 3.0  # of a run in a process that has imported everything
ROUND_SECONDS = 0.01  # of one client
BACKBONE = 100.0  # times as long where the last stage of a residual network is trained
WAIT_SECONDS = 7 * 24 * 3600.0


def federated(settings: Mapping[str, Any]) -> Job:
    """Return the job of a run; its digest is that of the configuration."""
    config = resolve_config(None, settings)
    clients = len(clients_of(config)[0]) + 1
    is_backbone = config.model.extractor.startswith("resnet") and config.model.sharing != "frozen"
    cost = START_SECONDS + ROUND_SECONDS * clients * config.train.rounds * (BACKBONE if is_backbone else 1)
    return Job(f"{__name__}:run_federated", config.model_dump(mode="json"), config.digest, cost)


def run_federated(settings: Mapping[str, Any], folder: Path, session: RaySession | None) -> dict[str, float]:
    """Run to the end, in this process or on Ray; an interrupted run is continued.

    Returns
    -------
    `accuracy` on the target after the last round, `seconds`, `bytes` sent, `bytes of data` (all but parameters), and
    for one update the millions of numbers in the messages of a client: `data`, `parameters` and their `sum`.
    """
    config = Config.model_validate(settings)
    if session is not None:  # other federations share the cluster
        config = config.model_copy(
            update={"resources": config.resources.model_copy(update={"wait_seconds": WAIT_SECONDS})}
        )
    if (folder / "run" / "config.yaml").exists():
        config.save(folder / "run" / "config.yaml")  # the data may have moved since the run was interrupted
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*private_batches")  # all clients are here
        result = run_in(config, folder / "run", local=session is None, session=session)
    if not result.finished:
        raise RunFailedError("interrupted")
    rmtree(folder / "run" / "checkpoints", ignore_errors=True)  # those of hundreds of runs would fill the disk
    summary = result.summary
    communication, clients = summary["communication"], len(summary["sources"]) + 1
    by_kind, directions = communication["bytes_by_kind"], communication["by_direction"]
    # Every client sends its data, and receives every average.
    scale = 1 / (4e6 * clients * config.train.rounds)
    data = scale * _sum_of(directions["up"], is_part=False)
    parameters = scale * _sum_of(directions["down"], is_part=True)
    return {
        "accuracy": summary["target_accuracy"]["final"],
        "seconds": summary["seconds"]["total"],
        "bytes": communication["bytes_total"],
        "bytes of data": _sum_of(by_kind, is_part=False),
        "data": data,
        "parameters": parameters,
        "sum": data + parameters,
    }


def _sum_of(traffic: Mapping[str, int], is_part: bool) -> int:
    """Return the bytes of parameters, or of all other messages but the greeting and figures for the records."""
    return sum(
        number for kind, number in traffic.items() if (kind in PARTS) == is_part and kind not in ("greeting", "metrics")
    )
