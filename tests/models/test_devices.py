"""Which device a client gets, and what is said if there is none. Tests with the device itself: tests/devices."""

import re

import pytest
import torch

import fedrf
from fedrf.config.loader import load_config
from fedrf.config.schema import ResourcesConfig
from fedrf.errors import RunFailedError
from fedrf.models import devices
from fedrf.models.devices import choose_device
from tests.conftest import TINY


@pytest.fixture
def usable(monkeypatch):
    """Set the accelerators that torch can use, in this order."""

    def set_usable(*kinds):
        found = {kind: lambda kind=kind: kind in kinds for kind in ("cuda", "mps")}
        monkeypatch.setattr(devices, "available", lambda: found)

    set_usable()
    return set_usable


@pytest.mark.parametrize(
    ("kinds", "keys", "reserved", "expected"),
    [
        (("cuda", "mps"), {}, None, "cuda:0"),
        (("mps",), {}, None, "mps:0"),
        ((), {}, None, "cpu"),
        (("cuda",), {}, 0.5, "cuda:0"),
        (("cuda",), {}, 0, "cpu"),
        (("cuda",), {"gpus_per_client": 0}, None, "cpu"),
        (("cuda",), {"accelerator": "cpu"}, 1, "cpu"),
        (("cuda", "mps"), {"accelerator": "mps"}, None, "mps:0"),
        ((), {"allow_cpu": True, "gpus_per_client": 1}, None, "cpu"),
        ((), {"allow_cpu": True}, 1, "cpu"),
        ((), {"allow_cpu": True, "accelerator": "cuda"}, None, "cpu"),
    ],
)
def test_the_device_follows_from_keys_and_reserved_gpus(usable, monkeypatch, kinds, keys, reserved, expected):
    monkeypatch.setattr(devices, "_has_nvidia", lambda: False)
    usable(*kinds)
    chosen = choose_device(ResourcesConfig(**keys), reserved)
    assert str(chosen.torch) == expected
    assert chosen.accelerator == expected.partition(":")[0]


def test_a_client_may_fill_only_its_part_of_the_memory(usable, monkeypatch):
    usable("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8000, 16000))
    assert choose_device(ResourcesConfig(), 0.25).room == 1000
    assert choose_device(ResourcesConfig(), 1).room == 4000
    assert choose_device(ResourcesConfig(), 0).room == 0
    assert choose_device(ResourcesConfig(), num_sharing=5).room == 800  # of `--local`, where nothing is reserved


@pytest.mark.parametrize(
    ("visible", "is_error"), [(None, True), ("0", True), ("0,1", True), ("", False), ("-1", False), (" ", False)]
)
def test_gpus_that_the_user_hides_are_not_expected(usable, monkeypatch, tmp_path, visible, is_error):
    """With a driver that does not work, so that torch finds none in any case."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(devices, "Path", lambda _: tmp_path)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if is_error:
        with pytest.raises(ValueError, match="torch has no accelerator that it can use"):
            choose_device(ResourcesConfig())
    else:
        assert choose_device(ResourcesConfig()).is_cpu


@pytest.mark.parametrize(
    ("keys", "reserved"),
    [
        ({}, 1),
        ({}, 0.1),
        ({"gpus_per_client": 0.5}, None),
        ({"accelerator": "cuda"}, None),
        ({"accelerator": "mps"}, None),
    ],
)
def test_a_wanted_gpu_that_torch_cannot_use_is_an_error_with_versions(usable, keys, reserved):
    with pytest.raises(ValueError, match="torch has no accelerator that it can use") as error:
        choose_device(ResourcesConfig(**keys), reserved)
    text = str(error.value)
    assert "\n" not in text
    assert f"torch {torch.__version__}" in text
    assert f"CUDA of torch {torch.version.cuda}" in text
    assert "resources.allow_cpu=true" in text


def test_the_error_names_the_driver_that_nvidia_smi_shows(usable, tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 470.12\necho 470.12\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ValueError, match=re.escape("(driver 470.12, CUDA of torch")):
        choose_device(ResourcesConfig(), 1)
    program.write_text("#!/bin/sh\necho failed >&2\nexit 9\n")
    with pytest.raises(ValueError, match="driver not found"):
        choose_device(ResourcesConfig(), 1)


@pytest.mark.skipif(torch.version.cuda is None, reason="this torch was built without CUDA")
def test_a_gpu_of_this_machine_that_torch_cannot_use_is_an_error_without_any_key(usable, monkeypatch):
    monkeypatch.setattr(devices, "_has_nvidia", lambda: True)
    with pytest.raises(ValueError, match="allow_cpu"):
        choose_device(ResourcesConfig())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_run_without_its_gpu_fails_with_one_line(tmp_path):
    keys = {**TINY, "resources.accelerator": "cuda"}
    with pytest.raises(
        RunFailedError, match=r"failed: ValueError: resources\.accelerator=cuda with gpus_per_client=auto"
    ):
        fedrf.run(None, keys, out=tmp_path, local=True)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"gpus_per_client": 2}, "is 2 GPUs for a process, which uses one: allowed is at most 1"),
        (
            {"gpus_per_client": 1, "clients_per_actor": 2},
            "is 2 GPUs for a process, which uses one: allowed is at most 0.5",
        ),
        ({"gpus_per_client": 0.5, "clients_per_actor": 3}, "allowed is at most 0.333"),
    ],
)
def test_more_than_one_gpu_for_a_process_is_refused(keys, text):
    with pytest.raises(ValueError, match=text):
        load_config(None, {f"resources.{key}": value for key, value in keys.items()})


def test_one_gpu_may_be_shared_by_the_clients_of_a_process():
    assert ResourcesConfig(gpus_per_client=0.25, clients_per_actor=4).gpus_per_client == 0.25
