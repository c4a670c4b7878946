"""The device of a client: which one it is, what it is called, and how it computes.

Nothing else in the package asks torch for accelerators.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import torch
from torch import Tensor

from fedrf.config.schema import ResourcesConfig

# Read by cuBLAS when it is first used; without it, sums on a GPU can differ from run to run.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

MEMORY_SHARE = 0.5  # of a client's part of the free memory of its device, for features of its samples
PROBE_SECONDS = 10.0


class Device(NamedTuple):
    """Where a client computes.

    Attributes
    ----------
    torch
        The device of its tensors.
    accelerator
        What Lightning's trainer calls it: a name, or an instance for devices that Lightning does not know.
    share
        The part of the device that is the client's, of 1.
    """

    torch: torch.device
    accelerator: Any
    share: float = 1.0

    @property
    def is_cpu(self) -> bool:
        """Whether this is the host."""
        return self.torch.type == "cpu"

    @property
    def room(self) -> int:
        """Bytes of the device's memory that features of samples may take; 0 on the CPU, whose memory they are in."""
        return 0 if self.is_cpu else int(MEMORY_SHARE * self.share * _memory(self.torch)[0])

    @property
    def place(self) -> tuple[str, str, str, int]:
        """Host, device, name of the hardware and bytes of memory, for the records."""
        return socket.gethostname(), str(self.torch), model_name(self.torch), _memory(self.torch)[1]

    def release(self) -> None:
        """Give memory that is not in use back to the device."""
        if not self.is_cpu:
            torch.get_device_module(self.torch).empty_cache()


CPU = Device(torch.device("cpu"), "cpu")


def available() -> dict[str, Callable[[], bool]]:
    """Return whether torch can use each kind of accelerator, in the order of preference."""
    return {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}


def choose_device(resources: ResourcesConfig, reserved: float | None = None, num_sharing: int = 1) -> Device:
    """Return the device of a client; raise a `ValueError` if an accelerator that it should use cannot be used.

    Parameters
    ----------
    reserved
        GPUs that are reserved for the client. None: nothing reserves them, and `resources.gpus_per_client` only says
        whether one is wanted.
    num_sharing
        If nothing reserves GPUs: the number of clients that use the same one.
    """
    key, asked = resources.accelerator, resources.gpus_per_client
    gpus = reserved if reserved is not None else 0.0 if asked == 0 else 1.0 / num_sharing
    if key == "cpu" or not gpus:
        return CPU
    for kind, is_available in available().items():
        if key in ("auto", kind) and is_available():
            return Device(torch.device(kind, 0), kind, min(1.0, gpus))
    is_expected = key != "auto" or reserved is not None or asked != "auto" or (_has_nvidia() and torch.version.cuda)
    if is_expected and not resources.allow_cpu:
        raise ValueError(_unusable(resources))
    return CPU


def _unusable(resources: ResourcesConfig) -> str:
    """Return what is wrong, with the versions that must fit together."""
    wanted = f"resources.accelerator={resources.accelerator} with gpus_per_client={resources.gpus_per_client}"
    versions = (
        f"driver {driver_version() or 'not found'}, CUDA of torch {torch.version.cuda}, torch {torch.__version__}"
    )
    return (
        f"{wanted} on {socket.gethostname()}: torch has no accelerator that it can use ({versions}); set "
        "resources.gpus_per_client=0 to use none, or resources.allow_cpu=true to go on without"
    )


def _has_nvidia() -> bool:
    """Return whether the node has an NVIDIA GPU that this process may see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    is_hidden = visible is not None and visible.strip() in ("", "-1")
    return not is_hidden and has_nvidia_device()


def has_nvidia_device() -> bool:
    """Return whether the node has an NVIDIA GPU, also if this process may not see it."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def driver_version() -> str:
    """Return the version of NVIDIA's driver on this node; empty if there is none."""
    if shutil.which("nvidia-smi") is None:
        return ""
    call = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        shown = subprocess.run(call, capture_output=True, text=True, check=True, timeout=PROBE_SECONDS).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return shown.strip().partition("\n")[0]


def model_name(device: torch.device) -> str:
    """Return the name of the hardware."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def _memory(device: torch.device) -> tuple[int, int]:
    """Return the free bytes and all bytes of a device's memory."""
    if device.type == "cpu":
        return 0, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if device.type == "mps":
        total = torch.mps.recommended_max_memory()
        return total - torch.mps.driver_allocated_memory(), total
    free, total = torch.get_device_module(device).mem_get_info(device)
    return free, total


def num_cpus() -> int:
    """Return the number of CPUs that this process may use, also if a container limits it."""
    return int(joblib.cpu_count())


def upload(values: Tensor, device: torch.device) -> Tensor:
    """Return the values on a device; on the way to a GPU the host does not wait for the copy."""
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
