"""The time from a new process to the first round, and the memory of a client's process, with synthetic data.

Client processes of one machine are forks of a process that has imported torch and Lightning (see
`fedrf.runtime.ray.forked_worker`). "Own memory" is what a process does not share with others.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from statistics import median
from time import perf_counter
from typing import Any

import psutil

from benchmarks.rows import report

STARTS = {
    "6 actors": (1, "<= 12"),
    "5 clients in 2 actors": (3, ""),
    "--local": (0, "<= 6"),
}
MB = 1e6


def start_up(clients_per_actor: int) -> tuple[float, dict[str, list[Any]]]:
    """Return the seconds from a new process to the first round, and the memory of its processes by their names."""
    began = perf_counter()
    command = [sys.executable, "-m", "benchmarks.synthetic", str(clients_per_actor)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        seconds = perf_counter() - began
        memory: dict[str, list[Any]] = {}
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                memory.setdefault(" ".join(child.cmdline()), []).append(child.memory_full_info())
        process.stdin.close()
    return seconds, memory


def report_memory(memory: dict[str, list[Any]]) -> None:
    """Report what the processes of clients have in memory, and the process that they are forks of."""
    clients = [info for name, infos in memory.items() if name.startswith("ray::SyntheticActor") for info in infos]
    (origin,) = [info for name, infos in memory.items() if "--serve" in name for info in infos]
    coordinator = [info for name, infos in memory.items() if name.startswith("ray::Coordinator") for info in infos]
    report("memory of a client's process: resident", median(info.rss for info in clients) / MB, "MB")
    report("memory of a client's process: its own part", median(info.uss for info in clients) / MB, "MB")
    report("memory of the process that they are forks of: resident", origin.rss / MB, "MB", "once on a machine")
    report("memory of the coordinator: resident", median(info.rss for info in coordinator) / MB, "MB")


def main() -> None:
    """Report start-up times and memory."""
    for name, (each, bar) in STARTS.items():
        seconds, memory = start_up(each)
        report(f"start-up to the first round, {name}", seconds, "s", bar=bar)
        if each == 1:
            report_memory(memory)


if __name__ == "__main__":
    main()
