"""What one node of a cluster can do: its device, versions, disks, and whether it shares a folder with the driver."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fedrf.archive import pack, unpack
from fedrf.errors import reason
from fedrf.files import write_atomically
from fedrf.models.trunk_cache import cache_folder

PACKAGES = ("fedrf", "torch", "ray")
SIZE = 512  # rows and columns of the matrices
TOLERANCE = 1e-3  # of a product; tf32 has 11 bits
DRIVER_FILE = "driver"  # in the folder of the driver


class NodeReport(NamedTuple):
    """What a node found out about itself.

    Attributes
    ----------
    device
        Name and memory of the GPU; "CPU" if no GPU was wanted.
    device_problem
        Why the device cannot be used, or nothing.
    driver
        Version of NVIDIA's driver, or nothing.
    cuda
        Version of the CUDA that torch was built with, or nothing.
    versions
        Of Python and of packages.
    shm_bytes
        Size of /dev/shm; None if there is none.
    cache
        The folder of cached features.
    cache_free_bytes
        Free disk space there.
    shares_folder
        Whether the node sees the driver's working folder.
    run_problem
        Why a small run failed on the device, or nothing.
    has_unused_gpu
        Whether no GPU was wanted, and the node has one.
    """

    device: str
    device_problem: str
    driver: str
    cuda: str
    versions: dict[str, str]
    shm_bytes: int | None
    cache: str
    cache_free_bytes: int
    shares_folder: bool
    run_problem: str
    has_unused_gpu: bool = False


SmallRun = Callable[[str], str]  # runs a federation on an accelerator, and returns what went wrong


def report(wants_gpu: bool, folder: Path, name: str, run: SmallRun = lambda accelerator: "") -> NodeReport:
    """Return what this node can do; raise an error if it cannot write and read a checkpoint.

    Parameters
    ----------
    wants_gpu
        Whether to use a GPU.
    folder
        A folder of the driver with its `DRIVER_FILE`.
    name
        Name of the file that this node writes there if it sees the folder.
    run
        Runs a small federation, if the device can be used.
    """
    import torch

    from fedrf.models.devices import driver_version, has_nvidia_device  # imports torch, as the driver does not

    accelerator = "cuda" if wants_gpu else "cpu"
    device, problem = _try_device(accelerator)
    driver = driver_version()
    shm, cache = Path("/dev/shm"), cache_folder()
    return NodeReport(
        device,
        problem,
        driver,
        torch.version.cuda or "",
        versions(),
        shutil.disk_usage(shm).total if shm.is_dir() else None,
        str(cache),
        shutil.disk_usage(next(path for path in (cache, *cache.parents) if path.exists())).free,
        _try_checkpoint(folder, name),
        run(accelerator) if device and not problem else "",
        not wants_gpu and (bool(driver) or has_nvidia_device()),
    )


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all nodes, without a suffix for the kind of build."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            found[package] = "none"
    return found


def write_driver_file(folder: Path) -> None:
    """Write the file by which a node recognises the folder of the driver."""
    (folder / DRIVER_FILE).write_bytes(pack(str(folder)))


def wrote_file(folder: Path, name: str) -> bool:
    """Return whether the file that a node wrote is intact here."""
    return _is_intact(folder / name, name)


def _try_device(device: str) -> tuple[str, str]:
    """Compare a matrix product on a device with that of the CPU; return the device's name and what is wrong."""
    import torch

    try:
        if device == "cuda":
            torch.cuda.init()  # its error says what is missing
        generator = torch.Generator().manual_seed(0)
        left, right = torch.randn(2, SIZE, SIZE, generator=generator)
        exact = left.double() @ right.double()
        error = float(((left.to(device) @ right.to(device)).cpu() - exact).norm() / exact.norm())
    except Exception as failure:  # of the driver, of torch, or of the GPU
        return "", reason(failure)
    problem = "" if error < TOLERANCE else f"a matrix product has a relative error of {error:.1g}"
    if device == "cpu":
        return "CPU", problem
    properties = torch.cuda.get_device_properties(0)
    return f"{properties.name}, {properties.total_memory / 1e9:.0f} GB", problem


def _try_checkpoint(folder: Path, name: str) -> bool:
    """Write and read an archive, in the driver's folder if this node sees it; return whether it does."""
    is_shared = _is_intact(folder / DRIVER_FILE, str(folder))
    with TemporaryDirectory() as own:
        file = (folder if is_shared else Path(own)) / name
        write_atomically(file, lambda path: path.write_bytes(pack(name)))
        if not _is_intact(file, name):
            raise OSError(f"{file}: what was written cannot be read")
    return is_shared


def _is_intact(file: Path, content: str) -> bool:
    return file.is_file() and bool(unpack(file.read_bytes()) == content)
