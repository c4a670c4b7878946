"""Settings of a GPU while a client runs."""

import subprocess
import sys
import warnings

import pytest
import torch
from torch.backends import cudnn

from fedrf.config.loader import load_config
from fedrf.models.arithmetic import arithmetic
from tests.conftest import TINY

CUDA = torch.device("cuda", 0)  # settings can be made without one


def settings():
    return (
        torch.are_deterministic_algorithms_enabled(),
        cudnn.benchmark,
        cudnn.allow_tf32,
        torch.get_float32_matmul_precision(),
    )


@pytest.fixture
def before():
    """Settings that no configuration has."""
    kept = settings()
    cudnn.benchmark, cudnn.allow_tf32 = True, True
    torch.set_float32_matmul_precision("medium")
    yield settings()
    assert settings() == (kept[0], True, True, "medium")
    cudnn.benchmark, cudnn.allow_tf32 = kept[1:3]
    torch.set_float32_matmul_precision(kept[3])


@pytest.mark.parametrize(
    ("mode", "precision", "expected"),
    [
        ("sync", "32", (True, False, False, "highest")),
        ("async", "32", (False, False, False, "highest")),
        ("sync", "tf32", (True, False, True, "high")),
        ("async", "bf16-mixed", (False, False, False, "highest")),
    ],
)
def test_settings_of_a_gpu_hold_until_the_last_client_has_ended(before, mode, precision, expected):
    config = load_config(None, {**TINY, "federation.mode": mode, "train.precision": precision})
    first, second = (arithmetic(config, CUDA, print) for _ in range(2))
    with first:
        with second:
            assert settings() == expected
        assert settings() == expected
    assert settings() == before


NEWER_KEYS = """
import torch
from torch.backends import cuda, cudnn
from fedrf.config.loader import load_config
from fedrf.models.arithmetic import arithmetic

def newer():
    return cuda.matmul.fp32_precision, cudnn.conv.fp32_precision

cuda.matmul.fp32_precision, cudnn.conv.fp32_precision = "tf32", "ieee"
with arithmetic(load_config(None, {"train.precision": "32"}), torch.device("cuda", 0), print):
    print(torch.get_float32_matmul_precision(), cudnn.allow_tf32, "tf32" in newer())
print(*newer())
"""


@pytest.mark.skipif(not hasattr(cudnn, "conv"), reason="this version of torch has one way to set the precision")
def test_a_process_may_have_set_the_precision_by_the_newer_keys_of_torch():
    """Torch then refuses to read the older ones. In a process of its own, which keeps such a state to the end."""
    call = subprocess.run([sys.executable, "-c", NEWER_KEYS], capture_output=True, text=True, check=False)
    assert call.stdout.splitlines() == ["highest False False", "tf32 ieee"], call.stderr


def test_nothing_changes_on_the_cpu(before):
    config = load_config(None, {**TINY, "federation.mode": "sync"})
    with arithmetic(config, torch.device("cpu"), print):
        assert settings() == before


def test_operations_without_a_deterministic_implementation_are_noted_once():
    config, notes = load_config(None, {**TINY, "federation.mode": "sync"}), []
    shown = warnings.showwarning
    with warnings.catch_warnings(), arithmetic(config, CUDA, notes.append):
        for _ in range(3):
            warnings.warn("pool_backward does not have a deterministic implementation, but you set it", stacklevel=1)
    assert notes == ["not the same bits on a GPU: pool_backward has no deterministic implementation"]
    assert warnings.showwarning is shown
