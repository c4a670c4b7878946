"""The job server of a Ray cluster, over HTTP: calls with a time limit, retries, and the output of a job."""

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

REQUEST_SECONDS = 60.0
RETRY_SECONDS = 300.0
POLL_SECONDS = 1.0
Answer = TypeVar("Answer")


def notify(message: str) -> None:
    """Print a message to standard error; standard output belongs to the job."""
    print(f"submit: {' '.join(message.split())}", file=sys.stderr, flush=True)


class JobServer(JobSubmissionClient):
    """Ray's client with a time limit on each call: Ray sets none, so a broken tunnel would block it for ever."""

    def __init__(self, address: str) -> None:
        for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
            os.environ.pop(name, None)  # Ray would use them instead of `address`
        scheme, separator, _ = address.partition("://")
        if separator and scheme not in ("http", "https"):
            raise ValueError(
                f"{address} is not the address of a job server; allowed: http://HOST:PORT, https://HOST:PORT, HOST:PORT"
            )
        super().__init__(address if separator else f"http://{address}")

    def _do_request(self, *arguments: Any, **settings: Any) -> requests.Response:
        return super()._do_request(*arguments, **{"timeout": REQUEST_SECONDS, **settings})

    def retry(self, call: Callable[..., Answer], *arguments: Any, **settings: Any) -> Answer:
        """Repeat a call while the server does not answer; raise `ConnectionError` after `RETRY_SECONDS`."""
        deadline = 0.0
        while True:
            try:
                return call(*arguments, **settings)
            except (OSError, RuntimeError) as error:  # `requests` raises OSErrors, Ray RuntimeErrors
                if isinstance(error, RuntimeError) and "status code 5" not in str(error):
                    raise
                if not deadline:
                    minutes = RETRY_SECONDS / 60
                    notify(f"no answer from {self.get_address()} ({reason(error)}); retrying for {minutes:.0f} minutes")
                    deadline = time.monotonic() + RETRY_SECONDS
                if time.monotonic() > deadline:
                    raise ConnectionError(f"{self.get_address()} does not answer: {reason(error)}") from error
                time.sleep(POLL_SECONDS)

    def find(self, job: str) -> JobDetails | None:
        """Return the details of a job; None if the cluster has no such job."""
        try:
            return self.retry(self.get_job_info, job)
        except RuntimeError as error:
            if "status code 404" in str(error):
                return None
            raise

    def read_log_file(self, node: str, name: str) -> bytes:
        """Return a file of a node's log folder; the server serves no other files."""
        answer = requests.get(
            f"{self.get_address()}/api/v0/logs/file",
            params={"node_id": node, "filename": name, "lines": "-1", "timeout": "3600"},
            headers=self._headers,
            cookies=self._cookies,
            verify=self._verify,
            timeout=REQUEST_SECONDS,
        )
        if not answer.ok:
            self._raise_error(answer)
        return answer.content


class OutputThread(threading.Thread):
    """Prints the output of a job while it runs; after a broken connection it continues where it stopped."""

    def __init__(self, server: JobServer, job: str) -> None:
        super().__init__(daemon=True)
        self.server, self.job = server, job
        self._num_printed = 0
        # Lines that Ray adds. They may come late, because Ray does not flush them before it starts the command.
        self._added_by_ray = re.compile(
            rf"^(.* -- Runtime env is setting up\.|Running entrypoint for job {re.escape(job)}: .*)\n", re.M
        )
        self._job_ended = threading.Event()
        self.start()

    def finish(self) -> None:
        """Wait for the last lines of a job that has ended."""
        self._job_ended.set()
        self.join(timeout=10 * POLL_SECONDS)

    def run(self) -> None:
        """Follow the log to its end."""
        while True:
            try:
                asyncio.run(self._follow())
                if self.server.get_job_info(self.job).status.is_terminal():
                    return
            except Exception:
                pass  # the main thread finds out whether the server does not answer or only this connection broke
            if self._job_ended.wait(POLL_SECONDS):
                return

    async def _follow(self) -> None:
        position = 0
        async for text in self.server.tail_job_logs(self.job):
            sys.stdout.write(self._added_by_ray.sub("", text[max(0, self._num_printed - position) :]))
            sys.stdout.flush()
            position += len(text)
            self._num_printed = max(self._num_printed, position)
