"""Run jobs and keep their results, one folder for each."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from fedrf import __version__
from fedrf.files import write_atomically
from fedrf.paper.plan import Job

if TYPE_CHECKING:
    from fedrf.runtime.ray import RaySession

RESULT = "result.json"


def run_job(
    function: str, settings: Mapping[str, Any], folder: Path, session: RaySession | None = None
) -> dict[str, float]:
    """Run a job, write its result, and return it."""
    compute: Callable[..., dict[str, float]] = resolve_name(function)
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    values = compute(settings, folder, session)
    seconds = time.perf_counter() - start
    content = {
        "version": __version__,
        "function": function,
        "settings": settings,
        "values": values,
        "seconds": seconds,
    }
    write_atomically(folder / RESULT, lambda path: path.write_text(json.dumps(content)))
    gc.collect()  # trainers and modules refer to each other, and a process runs hundreds of jobs
    return values


class JobStore:
    """The results of jobs below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def folder_of(self, job: Job) -> Path:
        """Return the folder of a job."""
        return self.folder / job.digest

    def result(self, job: Job) -> dict[str, Any] | None:
        """Return what a finished job has written: `values` and `seconds`; None if another version has computed it."""
        try:
            content = json.loads((self.folder_of(job) / RESULT).read_text())
            is_valid = content["version"] == __version__ and isinstance(content["values"], dict)
            return content if is_valid and content["seconds"] >= 0 else None
        except (OSError, ValueError, KeyError, TypeError):  # missing or damaged: the job is run again
            return None
