"""Run jobs side by side: in processes of this machine, or on a Ray cluster.

Each process of this machine uses one thread, so that several jobs share the processor and their times are comparable.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from fedrf.comparison.compare import format_duration
from fedrf.errors import reason
from fedrf.experiment.interrupts import Interrupts
from fedrf.paper.jobs import JobStore, run_job
from fedrf.paper.plan import Job

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
POLL_SECONDS = 0.5


def run_jobs(
    jobs: Mapping[str, Job],
    store: JobStore,
    titles: Mapping[str, str],
    processes: int,
    address: str | None = None,
    on_end: Callable[[Job], None] = lambda job: None,
) -> tuple[dict[str, str], bool]:
    """Run jobs that are not finished; return the reason for each that failed, and False if it was interrupted.

    Parameters
    ----------
    titles
        What a job computes, for the lines of progress.
    on_end
        Called after each job.
    """
    pending = [job for job in jobs.values() if store.result(job) is None]
    progress = Progress(list(jobs.values()), pending, store, processes)
    errors: dict[str, str] = {}
    with Interrupts() as interrupts:
        run = _on_cluster(pending, store, address) if address else _in_processes(pending, store, processes)
        for job, error in run(lambda: interrupts.wanted):
            if error is not None:
                errors[job.digest] = error
            progress.ended(job, titles[job.digest], error)
            on_end(job)
        return errors, not interrupts.wanted


Stop = Callable[[], bool]
Ended = Iterator[tuple[Job, str | None]]


def _in_processes(pending: Sequence[Job], store: JobStore, processes: int) -> Callable[[Stop], Ended]:
    def run(stop: Stop) -> Ended:
        waiting = sorted(pending, key=lambda job: -job.cost)  # long ones first: the processes end together
        while waiting and not stop():
            with _one_thread(), _pool(processes) as pool:
                yield from _fill(pool, waiting, store, processes, stop)

    return run


def _fill(pool: ProcessPoolExecutor, waiting: list[Job], store: JobStore, processes: int, stop: Stop) -> Ended:
    """Run jobs until none is left or a process has died, which ends the pool."""
    running: dict[Future[dict[str, float]], Job] = {}
    broken = False
    while running or (waiting and not stop() and not broken):
        while waiting and len(running) < processes and not stop() and not broken:
            job = waiting.pop(0)
            running[pool.submit(run_job, job.function, job.settings, store.folder_of(job))] = job
        done, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
        for future in done:
            job, error = running.pop(future), future.exception()
            broken = broken or isinstance(error, BrokenProcessPool)
            yield job, None if error is None else _line(error)


def _line(error: BaseException) -> str:
    text = "its process died" if isinstance(error, BrokenProcessPool) else reason(error)
    return f"{type(error).__name__}: {text}"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes that start in this block compute with one thread."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_prepare_process)


def _prepare_process() -> None:
    """Ignore Ctrl-C, which the parent handles, and hide warnings that hundreds of runs would repeat."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")


def _on_cluster(pending: Sequence[Job], store: JobStore, address: str) -> Callable[[Stop], Ended]:
    def run(stop: Stop) -> Ended:
        from fedrf.runtime.ray import run_side_by_side

        calls = {job.digest: (job.function, dict(job.settings), store.folder_of(job)) for job in pending}
        by_digest = {job.digest: job for job in pending}
        for digest, error in run_side_by_side(run_job, calls, address, stop):
            yield by_digest[digest], None if error is None else _line(error)

    return run


class Progress:
    """Prints a line on standard error for each job that ends, with the estimated time for the others.

    Times are those of finished jobs of the same kind, else `Job.cost`.
    """

    def __init__(self, jobs: Sequence[Job], pending: Sequence[Job], store: JobStore, processes: int) -> None:
        self.total, self.left, self.processes = len(jobs), list(pending), processes
        self.nominal, self.measured, self.began = 0.0, 0.0, time.monotonic()
        for job in jobs:
            if (result := store.result(job)) is not None:
                self.nominal += job.cost
                self.measured += result["seconds"]
        self._finished_cost = 0.0
        if pending:
            done = f"{self.total - len(pending)} of {self.total} jobs are already finished; " if jobs else ""
            _print(f"{done}{len(pending)} to run, {processes} at a time, about {format_duration(self.estimate())}")

    def estimate(self) -> float:
        """Return the estimated seconds until all jobs have ended."""
        cost = sum(job.cost for job in self.left)
        if self._finished_cost:
            return cost * (time.monotonic() - self.began) / self._finished_cost
        factor = self.measured / self.nominal if self.nominal else 1.0
        return factor * cost / self.processes

    def ended(self, job: Job, title: str, error: str | None) -> None:
        """Print that a job ended."""
        self.left.remove(job)
        self._finished_cost += job.cost
        estimate = f", about {format_duration(self.estimate())} left" if self.left else ""
        text = "done" if error is None else f"failed: {error}"
        _print(f"[{self.total - len(self.left)}/{self.total}{estimate}] {title}: {text}")


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
