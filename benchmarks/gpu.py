"""What only a GPU can show: copies from pinned memory, and the time of a round in each precision.

Precision is Lightning's (`train.precision`), and copies are `fedrf.models.devices.upload`. Messages are arrays of the
host, because the coordinator checks them there, so that Ray's direct transport of tensors between GPUs is not used.
Without a GPU that torch can use, it prints one line.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from benchmarks.gpu_check import missing_gpu
from benchmarks.rows import report
from benchmarks.training import make_config, run
from fedrf.data.dataset import data_root
from fedrf.models.devices import upload
from fedrf.runtime.ray import RaySession

PRECISIONS = ("32", "tf32", "bf16-mixed", "16-mixed")
ROWS, COLUMNS, REPEATS = 4096, 2560, 20


def milliseconds(work: Callable[[], object]) -> float:
    """Return the median time of some work on the GPU."""
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        began = perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1000 * (perf_counter() - began))
    return median(times)


def report_copies() -> None:
    """Report the time of copying features to the GPU."""
    values, device = torch.randn(ROWS, COLUMNS), torch.device("cuda")
    pinned = values.pin_memory()
    plain = milliseconds(lambda: values.to(device))
    report("copy of 42 MB to the GPU", plain, "ms")
    report("the same from pinned memory", milliseconds(lambda: pinned.to(device, non_blocking=True)), "ms")
    report("the same with pinning: fedrf", milliseconds(lambda: upload(values, device)), "ms")


def report_precisions() -> None:
    """Report the time of a round of a source and a target in each precision."""
    with RaySession() as session:
        keys = {"resources__accelerator": "cuda", "model__sharing": "averaged"}
        times = {name: run(make_config(1, train__precision=name, **keys), session) for name in PRECISIONS}
    for name, time in times.items():
        report(f"2 clients, train.precision={name}", time, "ms", f"{times['32'] / time:.2f} x as fast as 32")


def main() -> None:
    """Report what this machine's GPU can do."""
    if missing := missing_gpu():
        print(f"skipped: {missing}")
        return
    report_copies()
    if data_root() is not None:
        report_precisions()


if __name__ == "__main__":
    main()
