"""The job server of a Ray cluster, over HTTP: calls that come to an end, patience, and the output of a job."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import requests
from ray.job_submission import JobDetails, JobSubmissionClient

from fedrf.errors import reason

ANSWER_SECONDS = 60.0
PATIENCE_SECONDS = 300.0
PAUSE_SECONDS = 1.0
Answer = TypeVar("Answer")


def say(message: str) -> None:
    """Tell the user something; standard output belongs to the job."""
    print(f"submit: {' '.join(message.split())}", file=sys.stderr, flush=True)


class JobServer(JobSubmissionClient):
    """Ray's client, with an end to every call: Ray sets none, and a tunnel that breaks would hold it for ever."""

    def __init__(self, address: str) -> None:
        for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
            os.environ.pop(name, None)  # Ray would prefer them to what was asked for
        scheme, separator, _ = address.partition("://")
        if separator and scheme not in ("http", "https"):
            raise ValueError(f"{address} is no address of a job server; it begins with http:// or https://, or neither")
        super().__init__(address if separator else f"http://{address}")

    def _do_request(self, *arguments: Any, **settings: Any) -> requests.Response:
        return super()._do_request(*arguments, **{"timeout": ANSWER_SECONDS, **settings})

    def patiently(self, call: Callable[..., Answer], *arguments: Any, **settings: Any) -> Answer:
        """Make a call, again and again while the server does not answer; a `ConnectionError` after some minutes."""
        deadline = 0.0
        while True:
            try:
                return call(*arguments, **settings)
            except (OSError, RuntimeError) as error:  # those of `requests` are OSErrors, Ray's are RuntimeErrors
                if isinstance(error, RuntimeError) and "status code 5" not in str(error):
                    raise
                if not deadline:
                    minutes = PATIENCE_SECONDS / 60
                    say(
                        f"no answer from {self.get_address()} ({reason(error)}); trying again for {minutes:.0f} minutes"
                    )
                    deadline = time.monotonic() + PATIENCE_SECONDS
                if time.monotonic() > deadline:
                    raise ConnectionError(f"{self.get_address()} does not answer: {reason(error)}") from error
                time.sleep(PAUSE_SECONDS)

    def find(self, job: str) -> JobDetails | None:
        """Return what the cluster knows about a job; None if it knows of no such job."""
        try:
            return self.patiently(self.get_job_info, job)
        except RuntimeError as error:
            if "status code 404" in str(error):
                return None
            raise

    def read_log_file(self, node: str, name: str) -> bytes:
        """Return a file of a node's log folder, which is all that the server hands out of a disk."""
        answer = requests.get(
            f"{self.get_address()}/api/v0/logs/file",
            params={"node_id": node, "filename": name, "lines": "-1", "timeout": "3600"},
            headers=self._headers,
            cookies=self._cookies,
            verify=self._verify,
            timeout=ANSWER_SECONDS,
        )
        if not answer.ok:
            self._raise_error(answer)
        return answer.content


class Output(threading.Thread):
    """Prints what a job prints, as it comes, and goes on where it was when the connection breaks."""

    def __init__(self, server: JobServer, job: str) -> None:
        super().__init__(daemon=True)
        self.server, self.job = server, job
        self._seen = 0
        # Lines of Ray's own, which may come late: it does not flush them before it starts the command.
        self._rays = re.compile(
            rf"^(.* -- Runtime env is setting up\.|Running entrypoint for job {re.escape(job)}: .*)\n", re.M
        )
        self._over = threading.Event()
        self.start()

    def finish(self) -> None:
        """Wait for the last lines of a job that has ended."""
        self._over.set()
        self.join(timeout=10 * PAUSE_SECONDS)

    def run(self) -> None:
        """Follow the log to its end."""
        while True:
            try:
                asyncio.run(self._follow())
                if self.server.get_job_info(self.job).status.is_terminal():
                    return
            except Exception:
                pass  # whether the server is gone, or only this connection, is not for this thread to find out
            if self._over.wait(PAUSE_SECONDS):
                return

    async def _follow(self) -> None:
        position = 0
        async for text in self.server.tail_job_logs(self.job):
            sys.stdout.write(self._rays.sub("", text[max(0, self._seen - position) :]))
            sys.stdout.flush()
            position += len(text)
            self._seen = max(self._seen, position)
