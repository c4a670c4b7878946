"""A command on a cluster, from its submission to its results."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

from ray.job_submission import JobDetails, JobStatus

from cluster.fetch import fetch
from cluster.server import POLL_SECONDS, JobServer, OutputThread, notify
from cluster.task import Task
from fedrf.experiment.interrupts import Interrupts

FAILED, USAGE_ERROR, INTERRUPTED = 1, 2, 130  # exit codes
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
# The command or its environment is wrong: another attempt would fail in the same way.
PERMANENT_ERRORS = (
    "RUNTIME_ENV_SETUP_FAILURE",
    "JOB_ENTRYPOINT_COMMAND_START_ERROR",
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
)


class Submission:
    """A command on a cluster: one job, and a new one whenever the cluster loses a job."""

    def __init__(self, server: JobServer, name: str, task: Task, settings: dict[str, Any]) -> None:
        self.server, self.name, self.task, self.settings = server, name, task, settings
        ended = {str(job.submission_id): job.status.is_terminal() for job in server.list_jobs()}
        numbered_name = re.compile(re.escape(name) + r"(\.\d+)?")
        self.running = [job for job in ended if numbered_name.fullmatch(job) and not ended[job]]
        candidates = (name if number == 1 else f"{name}.{number}" for number in count(1))
        self.new_names: Iterator[str] = (job for job in candidates if job not in ended)
        self.hint = f"to follow, resume or fetch it, repeat the command with --id {name}"

    def run(self, retries: int) -> int:
        """Follow the job to its end, fetch its results and return the exit code."""
        try:
            code = self._until_ended(retries)
        except KeyboardInterrupt:
            notify(f"stopped following {self.name}; {self.hint}")
            return INTERRUPTED
        except ConnectionError as error:
            raise ConnectionError(f"{error}; {self.name} may still be running; {self.hint}") from error
        if self.task.folder is None or self.task.destination is None or code == USAGE_ERROR:
            return code
        return self._fetch(self.task.folder, self.task.destination, code)

    def _until_ended(self, retries: int) -> int:
        with Interrupts() as interrupts:
            for _ in range(retries + 1):
                job = self.running.pop() if self.running else self._submit()
                output = OutputThread(self.server, job)
                ended = self._await(job, interrupts)
                output.finish()
                code = exit_code(ended)
                if code is not None:
                    if code and ended and ended.error_type in PERMANENT_ERRORS:
                        lines = str(ended.message).strip().splitlines()
                        notify(f"{job} could not run: {lines[0]} {lines[-1]}")
                    return code
                if interrupts.wanted:
                    return INTERRUPTED
                notify(f"the cluster lost {job}: {_reason(ended)}")
                if self.task.folder is None:
                    return FAILED
        notify(f"the job was lost {retries + 1} times; {self.hint}")
        return FAILED

    def _submit(self) -> str:
        job = next(self.new_names)
        arguments: dict[str, Any] = {
            "entrypoint": self.task.entrypoint,
            "submission_id": job,
            "runtime_env": self.settings,
        }
        try:
            self.server.retry(self.server.submit_job, **arguments)
        except RuntimeError as error:
            # An earlier attempt may have reached the server although its answer was lost.
            if f"{job} already exists" not in str(error):
                raise
        return job

    def _await(self, job: str, interrupts: Interrupts) -> JobDetails | None:
        """Return the details of a job that has ended; None if the cluster no longer has it."""
        reported = ""
        while True:
            info = self.server.find(job)
            if info is None or info.status.is_terminal():
                return info
            state = info.status.value.lower()
            if interrupts.wanted:
                state = "being stopped; interrupt again to exit without waiting"
                with suppress(RuntimeError):  # the job may have ended in the meantime
                    self.server.retry(self.server.stop_job, job)
            if state != reported:
                notify(f"{job} is {state}")
            reported = state
            sleep(POLL_SECONDS)

    def _fetch(self, folder: str, destination: Path, code: int) -> int:
        try:
            path = fetch(self.server, self.name, folder, destination)
        except (OSError, RuntimeError, KeyboardInterrupt) as error:
            notify(f"could not fetch {folder}: {str(error) or 'interrupted'}; {self.hint}")
            return code or (INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED)
        if path is None:
            notify(f"nothing to fetch: {folder} does not exist on the cluster")
        return code


def exit_code(ended: JobDetails | None) -> int | None:
    """Return the exit code of a job as a shell reports it; None if the cluster lost the job."""
    if ended is None:
        return None
    if ended.status == JobStatus.STOPPED:
        return INTERRUPTED
    code = ended.driver_exit_code
    if code is None:
        return FAILED if ended.error_type in PERMANENT_ERRORS else None
    return None if code in KILLED else code if code >= 0 else 128 - code


def _reason(lost: JobDetails | None) -> str:
    if lost is None:
        return "the job no longer exists"
    return "the job was killed" if lost.driver_exit_code in KILLED else str(lost.message).partition("\n")[0]
