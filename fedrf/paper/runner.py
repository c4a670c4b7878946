"""Run jobs side by side: in processes of this machine, or on a Ray cluster.

Each process of this machine uses one thread, so that several jobs share the processor and their times are comparable.
"""

from __future__ import annotations

import ctypes
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
from pathlib import Path
from typing import Any

from fedrf.comparison.compare import format_duration
from fedrf.errors import reason
from fedrf.experiment.interrupts import Interrupts
from fedrf.paper.jobs import JobStore, run_job
from fedrf.paper.plan import Job

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
POLL_SECONDS = 0.5
PR_SET_PDEATHSIG = 1  # of prctl


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
    if not pending:
        return {}, True
    progress = Progress(list(jobs.values()), pending, store, None if address else processes)
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
            suspects: list[Job] = []
            with _one_thread(), _pool(processes) as pool:
                yield from _fill(pool, waiting, store, processes, stop, suspects)
            for suspect in suspects:
                with _one_thread(), _pool(1) as pool:
                    yield from _fill(pool, [suspect], store, 1, stop)

    return run


def _fill(
    pool: ProcessPoolExecutor,
    waiting: list[Job],
    store: JobStore,
    processes: int,
    stop: Stop,
    suspects: list[Job] | None = None,
) -> Ended:
    """Run jobs until none is left or a process has died, which ends the pool.

    It is not known which process died, so all jobs that ran at that time are added to `suspects`, to be tried alone.
    """
    running: dict[Future[dict[str, float]], Job] = {}
    broken = False
    while running or (waiting and not stop() and not broken):
        while waiting and len(running) < processes and not stop() and not broken:
            job = waiting[0]
            try:
                running[pool.submit(run_job, job.function, job.settings, store.folder_of(job))] = job
                waiting.pop(0)
            except BrokenProcessPool:  # it is started in the next pool
                broken = True
        done, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
        for future in done:
            job, error = running.pop(future), future.exception()
            broken = broken or isinstance(error, BrokenProcessPool)
            if isinstance(error, BrokenProcessPool) and suspects is not None:
                suspects.append(job)
            else:
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
    context = get_context("spawn")
    return ProcessPoolExecutor(
        processes, mp_context=context, initializer=_prepare_process, initargs=(context.Value("i", 0), count_gpus())
    )


def count_gpus() -> int:
    """Return the number of NVIDIA GPUs of this machine."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def _prepare_process(started: Any, gpus: int) -> None:
    """Leave signals of the terminal to the parent, end with it, take one of the GPUs, and hide repeated warnings."""
    os.setpgrp()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with started.get_lock():
        number = started.value
        started.value += 1
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(number % gpus)
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

    Before the first job has ended, the estimate is from times of finished jobs, else from `Job.cost`. `processes` is
    None on a cluster.
    """

    def __init__(self, jobs: Sequence[Job], pending: Sequence[Job], store: JobStore, processes: int | None) -> None:
        self.total, self.left, self.processes = len(jobs), list(pending), processes
        self.began, self._ended_cost = time.monotonic(), 0.0
        finished = [(job.cost, result["seconds"]) for job in jobs if (result := store.result(job)) is not None]
        self._factor = sum(seconds for _, seconds in finished) / sum(cost for cost, _ in finished) if finished else 1.0
        done = f"{len(finished)} of {self.total} jobs are already finished; " if finished else ""
        where = (
            "on the cluster"
            if processes is None
            else f"{processes} at a time, about {format_duration(self.estimate())}"
        )
        _print(f"{done}{len(pending)} to run, {where}")

    def estimate(self) -> float:
        """Return the estimated seconds until all jobs have ended."""
        cost = sum(job.cost for job in self.left)
        if self._ended_cost:
            return cost * (time.monotonic() - self.began) / self._ended_cost
        return self._factor * cost / (self.processes or 1)

    def ended(self, job: Job, title: str, error: str | None) -> None:
        """Print that a job ended."""
        self.left.remove(job)
        self._ended_cost += job.cost
        estimate = f", about {format_duration(self.estimate())} left" if self.left else ""
        text = "done" if error is None else f"failed: {error}"
        _print(f"[{self.total - len(self.left)}/{self.total}{estimate}] {title}: {text}")


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
