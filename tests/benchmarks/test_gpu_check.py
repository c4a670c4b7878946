"""`make gpu-check`: its message on a machine without a GPU, and its runs, here on the CPU."""

import subprocess
import sys

import pytest
import torch

from benchmarks.gpu_check import GROUPS, check_runs
from fedrf.config.registry import METHODS
from tests.conftest import TINY


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_gets_one_line_and_exit_code_1():
    done = subprocess.run([sys.executable, "-m", "benchmarks.gpu_check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("gpu-check: no usable GPU: ")
    assert done.stdout.count("\n") == 1


SAME_BITS = "two sync runs with the same seed end with the same bits"


@pytest.mark.slow
@pytest.mark.ray
def test_runs_with_other_bits_or_another_accuracy_fail(ray_session, tmp_path):
    fast = {"data.samples": 120, "model.extractor": "gradients", "train.rounds": 12, "resources.accelerator": "cpu"}
    groups = [[{}, {"train.lr": 1e-9, "adapt.when": "never"}], [{"method": "f-dann"}]]
    same, learned, untrained, other_method = check_runs(ray_session, tmp_path / "same", fast, groups)
    assert same == (SAME_BITS, True)
    assert learned[1]
    assert untrained[0].startswith("train.lr=1e-09, adapt.when=never: target accuracy 0.")
    assert not untrained[1]
    assert other_method[0].startswith("method=f-dann: target accuracy 0.")
    assert other_method[1]  # the first of its group
    (other,) = check_runs(ray_session, tmp_path / "other", {**TINY, "federation.private_batches": True}, [])
    assert other == (SAME_BITS, False)


def test_losses_are_scaled_for_one_optimiser_and_for_two():
    half = [keys for group in GROUPS for keys in group if keys["train.precision"] == "16-mixed"]
    assert [METHODS.find(keys.get("method", "fedrf-plus")).name for keys in half] == ["fedrf-plus", "f-dann"]
