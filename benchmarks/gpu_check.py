"""What to run first on a machine with a GPU: `make gpu-check`, some minutes.

It prints what `fedrf doctor` finds, then a line for each check, which ends with ok or FAILED:

    two sync runs with the same seed end with the same bits: ok
    train.precision=32: target accuracy 0.xxx, n s: ok
    train.precision=tf32: target accuracy 0.xxx, n s: ok
    train.precision=bf16-mixed: target accuracy 0.xxx, n s: ok
    train.precision=16-mixed: target accuracy 0.xxx, n s: ok
    method=f-dann, train.precision=32: target accuracy 0.xxx, n s: ok
    method=f-dann, train.precision=16-mixed: target accuracy 0.xxx, n s: ok

`f-dann` has two optimisers, whose losses are scaled one after the other. A precision fails if its accuracy is more than
0.1 from that with the first of the same method. The exit code is 1 if a line failed, or if
there is no GPU that can be used; then the only line says why.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

import fedrf
from fedrf.cli.doctor import print_checks
from fedrf.cli.doctor_checks import run_checks
from fedrf.cli.doctor_nodes import verdict
from fedrf.experiment.results import RunResult
from fedrf.runtime.node_report import report, versions
from fedrf.runtime.ray import CheckedNode, RaySession

# Convolutions and matrix products, in all clients and in the adaptation of the target.
SETTINGS = {
    "method": "fedrf-plus",
    "model.extractor": "cnn",
    "federation.mode": "sync",
    "data.samples": 300,
    "train.rounds": 30,
    "adapt.steps": 20,
    "track.evaluate_every": 10,
}
ON_GPU = {"resources.accelerator": "cuda"}
GROUPS = [
    [{"train.precision": precision} for precision in ("32", "tf32", "bf16-mixed", "16-mixed")],
    [{"method": "f-dann", "train.precision": precision} for precision in ("32", "16-mixed")],
]
LARGEST_DIFFERENCE = 0.1  # of accuracies, from the first of a group
Settings = Mapping[str, Any]


def missing_gpu() -> str:
    """Return why this machine's GPU cannot be used, or nothing."""
    with TemporaryDirectory() as folder:
        found = verdict(CheckedNode("", 0, report(True, Path(folder), "check")), versions())
    return "" if found.status == "ok" else f"{found.found}; {found.advice}"


def check_runs(
    session: RaySession, folder: Path, settings: Settings, groups: list[list[Settings]]
) -> Iterator[tuple[str, bool]]:
    """Run the federations below a folder; yield a line for each check, and whether it is passed."""

    def run(name: str, **changed: Any) -> RunResult:
        return fedrf.run(None, {**SETTINGS, **settings, **changed}, out=folder / name, session=session)

    # Not with the extractor of the other runs: adaptive pooling has no deterministic backward pass on CUDA.
    fixed = {"model.extractor": "gradients"}
    first, second = (final_weights(run(name, **fixed)) for name in ("first", "second"))
    yield "two sync runs with the same seed end with the same bits", bool(first) and first == second
    for group in groups:
        results = (run("-".join(map(str, changed.values())) or "unchanged", **changed) for changed in group)
        yield from _compare(group, results)


def _compare(group: list[Settings], results: Iterator[RunResult]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each run of a group, and whether its accuracy is close to that of the first."""
    accuracies = []
    for changed, result in zip(group, results, strict=True):
        accuracies.append(result.summary["target_accuracy"]["final"])
        is_close = abs(accuracies[-1] - accuracies[0]) <= LARGEST_DIFFERENCE
        keys = ", ".join(f"{key}={value}" for key, value in changed.items())
        seconds = result.summary["seconds"]["total"]
        yield f"{keys}: target accuracy {accuracies[-1]:.3f}, {seconds:.1f} s", result.finished and is_close


def final_weights(result: RunResult) -> dict[str, bytes]:
    """Return the weights of every client at the end of a run."""
    files = result.folder.glob("checkpoints/*/final.safetensors")
    return {path.parent.name: path.read_bytes() for path in files}


def main() -> int:
    """Print all checks; return the exit code."""
    missing = missing_gpu()
    if missing:
        print(f"gpu-check: {missing}")
        return 1
    print_checks(run_checks(), Console())
    passed = True
    with TemporaryDirectory() as folder, RaySession() as session:
        for line, is_ok in check_runs(session, Path(folder), ON_GPU, GROUPS):
            print(f"{line}: {'ok' if is_ok else 'FAILED'}", flush=True)
            passed &= is_ok
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
