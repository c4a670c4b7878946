"""Runs federations on the simulated device, and watches where they compute and how often the host waits for it."""

from __future__ import annotations

import threading
import traceback
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle

import torch
from lightning.pytorch.accelerators import AcceleratorRegistry, CPUAccelerator
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedrf.federation import worker
from fedrf.federation.module import FederatedModule
from fedrf.models import devices, trunk, trunk_rows
from fedrf.models.trunk_rows import TrunkRows
from fedrf.tca import precision
from tests.devices.simulated_device import DEVICE, SYNCS, SimulatedTensor

aten = torch.ops.aten
# Operations whose time grows faster than their results; on the host they would starve an accelerator.
LARGE = {
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.convolution.default,
    aten._linalg_eigh.default,
    aten._cdist_forward.default,
    aten._pdist_forward.default,
    aten.linalg_qr.default,
}
# Where the host may do them: for the one W and C that come from the closed form, which are numbers of NumPy.
ON_THE_HOST = {"set_class_map"}


class SimulatedAccelerator(CPUAccelerator):
    """What Lightning needs to know of the device."""

    def setup_device(self, device):
        pass


@dataclass
class Watch:
    """What was seen in one run.

    Attributes
    ----------
    syncs
        For source and target, the number of times that the host waited in each step, by round.
    on_host
        Functions of the package that did large computations on the host.
    rows_on
        Types of the devices that features of samples are read from.
    fail_in
        The round or step in which the target fails, once.
    """

    syncs: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    on_host: Counter = field(default_factory=Counter)
    rows_on: set[str] = field(default_factory=set)
    fail_in: int | None = None


class HostComputation(TorchDispatchMode):
    """Counts large operations on the host, by the function of the package that asked for them."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        if operation in LARGE and not any(isinstance(value, SimulatedTensor) for value in tensors):
            names = [frame.name for frame in traceback.extract_stack() if "/fedrf/" in frame.filename]
            if not ON_THE_HOST & set(names):
                self.counts[names[-1] if names else "backward"] += 1
        return operation(*args, **(kwargs or {}))


@contextmanager
def watched():
    """Let all clients of this process use the simulated device, and yield what is seen."""
    watch, step, run = Watch(), FederatedModule.training_step, worker.run_client
    read = TrunkRows.__getitem__

    def counted_step(self, batch, batch_idx):
        if batch.round == watch.fail_in and self.schedule.is_target:
            watch.fail_in = None
            raise RuntimeError("this step fails")
        before, role = SYNCS.total(), "target" if self.schedule.is_target else "source"
        step(self, batch, batch_idx)
        watch.syncs[role][batch.round] = max(SYNCS.total() - before, watch.syncs[role].get(batch.round, 0))

    def watched_read(self, rows):
        values = read(self, rows)
        watch.rows_on.add(values.device.type)
        return values

    def watched_client(*arguments, **more):
        with HostComputation(watch.on_host):
            run(*arguments, **more)

    FederatedModule.training_step, worker.run_client = counted_step, watched_client
    TrunkRows.__getitem__ = watched_read
    try:
        yield watch
    finally:
        FederatedModule.training_step, worker.run_client = step, run
        TrunkRows.__getitem__ = read


def install():
    """Let `accelerator=auto` find the simulated device, for the rest of this process."""
    AcceleratorRegistry.register("sim", SimulatedAccelerator, description="simulated")
    devices.available = lambda: {"sim": lambda: True}
    trunk.ACCELERATOR_BATCH_SIZE = 8  # backbones are slow here


@contextmanager
def without_float64():
    """Let the device refuse double precision, as that of Apple does."""
    DEVICE.refuses_float64 = True
    precision.WITHOUT_FLOAT64.add("sim")
    try:
        yield
    finally:
        DEVICE.refuses_float64 = False
        precision.WITHOUT_FLOAT64.discard("sim")


@contextmanager
def filling_memory():
    """Let the features of every second domain of a client, which is a thread, not fit into the memory of the device."""
    read = DEVICE.mem_get_info
    answers = defaultdict(lambda: cycle([read(), (0, 0)]))
    DEVICE.mem_get_info = lambda device=None: next(answers[threading.get_ident()])
    try:
        yield
    finally:
        DEVICE.mem_get_info = read


@contextmanager
def little_host_memory():
    """Let no features fit into the memory of the host."""
    limit, trunk_rows.MEMORY_LIMIT = trunk_rows.MEMORY_LIMIT, 0
    try:
        yield
    finally:
        trunk_rows.MEMORY_LIMIT = limit
