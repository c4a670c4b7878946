"""A command on a cluster from its submission to its results, as several jobs if the cluster loses some."""

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
from cluster.server import PAUSE_SECONDS, JobServer, Output, say
from cluster.task import Task
from fedrf.experiment.interrupts import Interrupts

FAILED, WRONG_CALL, INTERRUPTED = 1, 2, 130
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
# The command or its environment is wrong, and will be wrong again.
HOPELESS = ("RUNTIME_ENV_SETUP_FAILURE", "JOB_ENTRYPOINT_COMMAND_START_ERROR", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE")


class Submission:
    """A command on a cluster, as several jobs if the cluster loses some."""

    def __init__(self, server: JobServer, name: str, task: Task, settings: dict[str, Any]) -> None:
        self.server, self.name, self.task, self.settings = server, name, task, settings
        known = {str(job.submission_id): job.status.is_terminal() for job in server.list_jobs()}
        mine = re.compile(re.escape(name) + r"(\.\d+)?")
        self.running = [job for job, ended in known.items() if mine.fullmatch(job) and not ended]
        numbered = (name if number == 1 else f"{name}.{number}" for number in count(1))
        self.names: Iterator[str] = (job for job in numbered if job not in known)
        self.hint = f"to follow, resume or fetch it, repeat the command with --id {name}"

    def run(self, retries: int) -> int:
        """Return the exit code, after everything has been fetched."""
        try:
            code = self._until_ended(retries)
        except KeyboardInterrupt:
            say(f"left {self.name} to itself; {self.hint}")
            return INTERRUPTED
        except ConnectionError as error:
            raise ConnectionError(f"{error}; {self.name} may be running all the same; {self.hint}") from error
        if self.task.folder is None or self.task.destination is None or code == WRONG_CALL:
            return code
        return self._fetch(self.task.folder, self.task.destination, code)

    def _until_ended(self, retries: int) -> int:
        with Interrupts() as interrupts:
            for _ in range(retries + 1):
                job = self.running.pop() if self.running else self._submit()
                output = Output(self.server, job)
                ended = self._await(job, interrupts)
                output.finish()
                code = exit_code(ended)
                if code is not None:
                    if code and ended and ended.error_type in HOPELESS:
                        lines = str(ended.message).strip().splitlines()
                        say(f"{job} could not run: {lines[0]} {lines[-1]}")
                    return code
                if interrupts.wanted:
                    return INTERRUPTED
                say(f"the cluster lost {job}: {_reason(ended)}")
                if self.task.folder is None:
                    return FAILED
        say(f"lost {retries + 1} times; {self.hint}")
        return FAILED

    def _submit(self) -> str:
        job = next(self.names)
        wanted: dict[str, Any] = {
            "entrypoint": self.task.entrypoint,
            "submission_id": job,
            "runtime_env": self.settings,
        }
        try:
            self.server.patiently(self.server.submit_job, **wanted)
        except RuntimeError as error:
            # The answer to the first trial may have been lost on its way here.
            if f"{job} already exists" not in str(error):
                raise
        return job

    def _await(self, job: str, interrupts: Interrupts) -> JobDetails | None:
        """Return what became of a job; None if the cluster forgot it."""
        told = ""
        while True:
            info = self.server.find(job)
            if info is None or info.status.is_terminal():
                return info
            state = info.status.value.lower()
            if interrupts.wanted:
                state = "being stopped; interrupt again to leave it to itself"
                with suppress(RuntimeError):  # it may just have ended
                    self.server.patiently(self.server.stop_job, job)
            if state != told:
                say(f"{job} is {state}")
            told = state
            sleep(PAUSE_SECONDS)

    def _fetch(self, folder: str, destination: Path, code: int) -> int:
        try:
            found = fetch(self.server, self.name, folder, destination)
        except (OSError, RuntimeError, KeyboardInterrupt) as error:
            say(f"{folder} of the cluster was not fetched: {str(error) or 'interrupted'}; {self.hint}")
            return code or (INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED)
        if found is None:
            say(f"nothing to fetch: the cluster has no {folder}")
        return code


def exit_code(ended: JobDetails | None) -> int | None:
    """Return the exit code of a job as a shell would; None if the cluster lost it."""
    if ended is None:
        return None
    if ended.status == JobStatus.STOPPED:
        return INTERRUPTED
    code = ended.driver_exit_code
    if code is None:
        return FAILED if ended.error_type in HOPELESS else None
    return None if code in KILLED else code if code >= 0 else 128 - code


def _reason(lost: JobDetails | None) -> str:
    if lost is None:
        return "it knows of no such job any more"
    return "it was killed" if lost.driver_exit_code in KILLED else str(lost.message).partition("\n")[0]
