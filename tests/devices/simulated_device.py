"""An accelerator without hardware: tensors on the device "sim" hold CPU data and refuse to meet tensors on the host.

It uses PyTorch's backend for Python (PrivateUse1). Importing this module registers the device in the whole process, so
tests import it in processes of their own. Mixing devices raises, as with CUDA; 0-dimensional host tensors are numbers.
"""

from __future__ import annotations

import threading
from collections import Counter

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten = torch.ops.aten
# Operations that copy between devices, or index by positions on the host.
MAY_MIX = {
    aten.copy_.default,
    aten._copy_from.default,
    aten._to_copy.default,
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
    aten._index_put_impl_.default,
    aten.set_.source_Tensor,
}
# Operations whose result the host waits for, besides copies to it.
WAITS = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.is_nonzero.default,
    aten.equal.default,
    aten.masked_select.default,
}
FREE_BYTES = 1 << 30


class Device:
    """The module `torch.sim`."""

    refuses_float64 = False
    emptied = 0

    def is_available(self):
        return True

    def is_initialized(self):
        return True

    def device_count(self):
        return 1

    def current_device(self):
        return 0

    def _is_in_bad_fork(self):
        return False

    def manual_seed_all(self, seed):
        pass

    def get_rng_state(self, device=None):
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state, device=None):
        pass

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]

    def mem_get_info(self, device=None):
        return FREE_BYTES, FREE_BYTES

    def empty_cache(self):
        self.emptied += 1


class Syncs(threading.local):
    """How often the host has waited for the device, by operation, in this thread."""

    def __init__(self):
        self.by_operation = Counter()

    def count(self, operation):
        self.by_operation[str(operation)] += 1

    def total(self):
        return self.by_operation.total()


DEVICE, SYNCS = Device(), Syncs()
_setup_privateuseone_for_python_backend("sim", backend_module=DEVICE)
SIM = torch.device("sim:0")
# The device has no operations in half precision: torch's autocast changes nothing there.
AUTOCAST = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
AUTOCAST.fallback(torch.library.fallthrough_kernel)


class SimulatedTensor(Tensor):
    """A tensor on the device, around one on the host."""

    @staticmethod
    def __new__(cls, inner):
        assert type(inner) is Tensor, type(inner)
        if DEVICE.refuses_float64 and inner.dtype == torch.float64:
            raise TypeError("Cannot convert a tensor to float64: the device does not support it")
        outer = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=SIM,
        )
        outer.inner = inner
        return outer

    def __repr__(self):
        return f"SimulatedTensor({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        check_devices(operation, args, tensors)
        if operation in WAITS:
            SYNCS.count(operation)
        wanted = kwargs.get("device")
        if wanted is not None:
            kwargs["device"] = torch.device("cpu")
        to_host = wanted is not None and torch.device(wanted).type == "cpu"
        if to_host and any(isinstance(value, cls) for value in tensors):
            SYNCS.count("copy to the host")
        if operation is aten.copy_.default and not isinstance(args[0], cls):
            SYNCS.count("copy to the host")
            return args[0].copy_(args[1].inner)
        result = operation(*tree_map(on_host, args), **tree_map(on_host, kwargs))
        if to_host:
            return result
        result = tree_map(lambda value: cls(value) if isinstance(value, Tensor) else value, result)
        return return_and_correct_aliasing(operation, args, kwargs, result)


def check_devices(operation, args, tensors):
    """Raise as CUDA does if an operation gets tensors of both devices."""
    here = [value for value in tensors if isinstance(value, SimulatedTensor)]
    # Fused steps of optimisers take every tensor from the device, also numbers.
    smallest = 0 if "_fused_" in str(operation) else 1
    there = [value for value in tensors if not isinstance(value, SimulatedTensor) and value.ndim >= smallest]
    if here and there and operation not in MAY_MIX:
        shapes = [tuple(value.shape) for value in here], [tuple(value.shape) for value in there]
        raise RuntimeError(f"Expected all tensors to be on the same device: {operation} got sim and cpu, {shapes}")
    if operation is aten.index.Tensor and here and not isinstance(args[0], SimulatedTensor):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")


def on_host(value):
    """Return the data of a tensor on the device; other values as they are."""
    return value.inner if isinstance(value, SimulatedTensor) else value


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return SimulatedTensor(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return SimulatedTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source, destination, non_blocking=False):
    if isinstance(source, SimulatedTensor) and not isinstance(destination, SimulatedTensor):
        SYNCS.count("copy to the host")
    on_host(destination).copy_(on_host(source))
    return destination


def _fallback(operation, *args, **kwargs):
    return SimulatedTensor.__torch_dispatch__(operation, (), args, kwargs)


KERNELS = torch.library.Library("aten", "IMPL")
KERNELS.impl("empty.memory_format", _empty, "PrivateUse1")
KERNELS.impl("empty_strided", _empty_strided, "PrivateUse1")
KERNELS.impl("_copy_from", _copy_from, "PrivateUse1")
REST = torch.library.Library("_", "IMPL")
REST.fallback(_fallback, "PrivateUse1")
