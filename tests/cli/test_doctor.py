import json
import sys

import pytest
import torch
from rich.console import Console

from fedrf.cli import doctor_checks
from fedrf.cli.doctor import print_checks
from fedrf.cli.doctor_checks import Check, _gpus, can_run, run_checks
from fedrf.config.registry import DATASETS
from fedrf.models import devices
from tests.cli.calls import call


def named(checks):
    return {check.name: check for check in checks}


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("FEDRF_DATA", raising=False)


def test_all_requirements_of_a_run_are_listed(quiet):
    checks = named(run_checks())
    assert set(doctor_checks.PACKAGES) < set(checks)
    assert {"python", "cpu", "gpu", "memory", "disk", "ray cluster", "wandb login", "data root"} < set(checks)
    assert checks["torch"].status == "ok"
    assert checks["data root"].status == "missing"


def test_checks_that_fail_say_what_to_do(quiet, tmp_path):
    for checks in (run_checks(), run_checks(str(tmp_path)), run_checks(str(tmp_path / "nowhere"))):
        assert all(check.advice for check in checks if check.status != "ok")


def test_datasets_are_found_domain_by_domain(quiet, tmp_path):
    (tmp_path / "Office-31/amazon").mkdir(parents=True)
    check = named(run_checks(str(tmp_path)))["data: office31"]
    assert (check.status, check.found) == ("missing", "amazon")
    assert f"domain dslr not found; looked for {tmp_path}/Office-31/dslr" in check.advice
    assert DATASETS.find("office31").origin in check.advice
    assert check.advice.endswith("also missing: webcam")
    for domain in ("dslr", "webcam"):
        (tmp_path / "Office-31" / domain).mkdir()
    check = named(run_checks(str(tmp_path)))["data: office31"]
    assert (check.status, check.found, check.advice) == ("ok", "amazon, dslr, webcam", "")


def test_data_sets_that_need_files_are_looked_for(quiet, tmp_path):
    listed = {name.removeprefix("data: ") for name in named(run_checks(str(tmp_path))) if name.startswith("data: ")}
    assert listed == set(DATASETS.names()) - {"digits", "folder", "features"}


@pytest.mark.realdata
def test_real_data_is_found(quiet, data_root):
    checks = named(run_checks(str(data_root)))
    for name in ("office31", "office-caltech10-surf"):
        assert checks[f"data: {name}"].status == "ok"
    assert checks["data: digit-five"].found != "nothing"


def test_low_memory_and_disk_are_problems(quiet, monkeypatch):
    monkeypatch.setattr(doctor_checks, "LOW_MEMORY_GB", 1e9)
    monkeypatch.setattr(doctor_checks, "LOW_DISK_GB", 1e9)
    checks = run_checks()
    assert named(checks)["memory"].status == named(checks)["disk"].status == "problem"
    assert not can_run(checks)


def test_a_missing_package_is_a_problem(quiet, monkeypatch):
    monkeypatch.setattr(doctor_checks, "PACKAGES", ("no-such-package",))
    check = named(run_checks())["no-such-package"]
    assert (check.status, check.advice) == ("problem", "pip install no-such-package")


@pytest.mark.parametrize("package", ["torch", "torchvision", "wandb"])
def test_a_package_that_cannot_be_imported_is_reported(quiet, monkeypatch, package):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    checks = named(run_checks())
    affected = {"torch": "gpu", "torchvision": "torch pair", "wandb": "wandb login"}[package]
    assert checks[affected].status != "ok"
    assert checks[affected].advice


def test_square_brackets_are_shown_as_they_are():
    console = Console(record=True, width=200)
    print_checks([Check("weights", "missing", "not installed", "pip install 'fedrf[weights]'")], console)
    assert "pip install 'fedrf[weights]'" in console.export_text()


def test_wandb_login_state(quiet, monkeypatch, tmp_path):
    import wandb

    def status():
        return named(run_checks())["wandb login"].status

    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert status() == "missing"
    host = wandb.Settings().base_url.removeprefix("https://")
    (tmp_path / "netrc").write_text(f"machine {host} login user password {'0' * 40}\n")
    assert status() == "ok"
    (tmp_path / "netrc").write_text("not a netrc file")
    assert status() == "missing"
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert status() == "ok"


def test_json(quiet, monkeypatch, capsys):
    checks = json.loads(call(["doctor", "--json"], monkeypatch, capsys)[1])
    assert {"name": "wandb login", "status": "ok", "found": "not needed: WANDB_MODE=offline", "advice": ""} in checks


def test_a_problem_gives_exit_code_1(quiet, monkeypatch, capsys):
    monkeypatch.setattr(doctor_checks, "PACKAGES", ("no-such-package",))
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = call(["doctor"], monkeypatch, capsys)
    assert code == 1
    assert "pip install no-such-package" in out


def test_a_cluster_that_does_not_answer_is_a_problem(quiet, monkeypatch):
    def refuse(address):
        raise ValueError(f"no Ray cluster answers at {address!r}")

    monkeypatch.setattr(doctor_checks, "cluster_resources", refuse)
    check = named(run_checks(address="10.0.0.1:6379"))["ray cluster"]
    assert check.status == "problem"
    assert "10.0.0.1:6379" in check.found


def test_the_size_of_the_backbone_cache_is_shown(quiet, monkeypatch, tmp_path):
    import numpy as np

    from fedrf.models.trunk_cache import Entry

    monkeypatch.setenv("FEDRF_CACHE", str(tmp_path))
    monkeypatch.setenv("FEDRF_CACHE_GB", "5")
    rows = np.ones((1000, 2500), dtype=np.float32)
    Entry.reserve("key", 1000, rows[0], np.arange(1000)).write(np.arange(1000), rows)
    check = named(run_checks())["backbone cache"]
    assert (check.status, check.found) == ("ok", f"0.01 of at most 5 GB in {tmp_path}")
    monkeypatch.setenv("FEDRF_CACHE_GB", "much")
    assert named(run_checks())["backbone cache"].status == "problem"


def test_a_gpu_that_clients_could_not_use_is_a_problem(monkeypatch):
    monkeypatch.setattr(devices, "available", lambda: {"cuda": lambda: False, "mps": lambda: False})
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(devices, "_has_nvidia", lambda: True)
    assert _gpus().status == "problem"
    assert "torch has no accelerator that it can use" in _gpus().found
    monkeypatch.setattr(devices, "_has_nvidia", lambda: False)
    assert _gpus().status == "missing"
