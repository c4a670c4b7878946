"""The verdict of `fedrf doctor` on each node of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fedrf.cli.doctor_check import LOW_DISK_GB, Check
from fedrf.errors import reason
from fedrf.runtime.node_report import NodeReport, versions
from fedrf.runtime.ray import CheckedNode, check_nodes

MIN_DRIVER = {"12": 525, "13": 580}  # of NVIDIA, by the major version of CUDA
SMALL_RUN = {"data.samples": 40, "train.rounds": 2, "adapt.steps": 1, "track.evaluate_every": 1}


def node_checks(address: str) -> Iterator[Check]:
    """Yield a verdict for every node of a cluster that can hold clients."""
    for node in check_nodes(address, problem_of_small_run):
        yield verdict(node, versions())


def problem_of_small_run(accelerator: str) -> str:
    """Run a small federation in this process, with checkpoints; return what went wrong, or nothing."""
    import fedrf

    keys = {**SMALL_RUN, "federation.checkpoint_seconds": 0, "resources.accelerator": accelerator}
    with TemporaryDirectory() as folder:
        try:
            fedrf.run(None, keys, out=Path(folder) / "run", local=True)
        except Exception as error:  # whatever a run on this node would fail with
            return reason(error)
    return ""


def verdict(node: CheckedNode, expected: dict[str, str]) -> Check:
    """Return what is wrong with a node, or what it has if nothing is.

    Parameters
    ----------
    node
        What the node answered.
    expected
        The versions of the driver's node.
    """
    name = f"node {node.name}"
    if node.report is None:
        return Check(name, "problem", node.problem, "install there what the driver has; see `ray status` and its logs")
    problems = [*_device(node.report), *_others(node, node.report, expected)]
    if problems:
        found, advice = zip(*problems, strict=True)
        return Check(name, "problem", "; ".join(found), "; ".join(filter(None, advice)))
    return Check(name, "ok", _describe(node.report))


def _device(report: NodeReport) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the device, and what to do."""
    if report.has_unused_gpu:
        yield "Ray sees no GPU, and the node has one", "ray start without --num-gpus=0; containers need --gpus all"
    if report.device:
        if report.device_problem:
            yield f"{report.device}: {report.device_problem}", "replace the device, or take the node out of the cluster"
        if report.run_problem:
            yield f"a small run failed: {report.run_problem}", "the same on the node: fedrf run --local train.rounds=2"
        return
    torch = f"torch {report.versions['torch']} for {f'CUDA {report.cuda}' if report.cuda else 'CPUs only'}"
    found = f"no usable GPU: {report.device_problem.rstrip('.')} (driver {report.driver or 'none'}, {torch})"
    driver = MIN_DRIVER.get(report.cuda.partition(".")[0])
    wanted = f"a driver >= {driver}, and containers with --gpus all" if driver else "wheels of torch with CUDA"
    yield found, f"the node needs {wanted}; on CPUs: resources.gpus_per_client=0"


def _others(node: CheckedNode, report: NodeReport, expected: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what else is wrong, and what to do."""
    if node.problem:
        yield node.problem, "mount the same folder with the same rights on all nodes, or on none"
    for package, version in report.versions.items():
        if version != expected[package]:
            yield f"{package} {version}, the driver has {expected[package]}", f"install {package} {expected[package]}"
    if report.shm_bytes is not None and report.shm_bytes < node.object_store_bytes:
        found = f"/dev/shm has {report.shm_bytes / 1e9:.1f} GB, Ray's object store {node.object_store_bytes / 1e9:.1f}"
        yield found, "docker run --shm-size, an emptyDir with medium: Memory, or ray start --object-store-memory"
    if report.cache_free_bytes < LOW_DISK_GB * 1e9:
        yield f"{report.cache_free_bytes / 1e9:.0f} GB free in {report.cache}", "free some space, or set FEDRF_CACHE"


def _describe(report: NodeReport) -> str:
    driver = f", driver {report.driver}, CUDA {report.cuda}" if report.driver else ""
    shm = "" if report.shm_bytes is None else f"; /dev/shm {report.shm_bytes / 1e9:.1f} GB"
    folder = "shared with the driver" if report.shares_folder else "not shared with the driver"
    return (
        f"{report.device}{driver}; torch {report.versions['torch']}{shm}; "
        f"{report.cache_free_bytes / 1e9:.0f} GB free in {report.cache}; working folder {folder}"
    )
