import json
import subprocess
import sys

import pytest
from rich.console import Console

from fedrf.cli import doctor
from fedrf.config.registry import DATASETS


def named(checks):
    return {check.name: check for check in checks}


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("FEDRF_DATA", raising=False)


def test_everything_that_runs_depend_on_is_listed(quiet):
    checks = named(doctor.examine())
    assert set(doctor.PACKAGES) < set(checks)
    assert {"python", "cpu", "gpu", "memory", "disk", "ray cluster", "wandb login", "data root"} < set(checks)
    assert checks["torch"].status == "ok"
    assert checks["data root"].status == "missing"


def test_what_is_not_ok_says_what_to_do(quiet, tmp_path):
    for checks in (doctor.examine(), doctor.examine(str(tmp_path)), doctor.examine(str(tmp_path / "nowhere"))):
        assert all(check.advice for check in checks if check.status != "ok")


def test_datasets_are_found_domain_by_domain(quiet, tmp_path):
    (tmp_path / "Office-31/amazon").mkdir(parents=True)
    check = named(doctor.examine(str(tmp_path)))["data: office31"]
    assert (check.status, check.found) == ("missing", "amazon")
    assert f"domain dslr not found; looked for {tmp_path}/Office-31/dslr" in check.advice
    assert DATASETS.find("office31").origin in check.advice
    assert check.advice.endswith("also missing: webcam")
    for domain in ("dslr", "webcam"):
        (tmp_path / "Office-31" / domain).mkdir()
    check = named(doctor.examine(str(tmp_path)))["data: office31"]
    assert (check.status, check.found, check.advice) == ("ok", "amazon, dslr, webcam", "")


def test_data_sets_that_are_looked_for_are_those_with_a_place(quiet, tmp_path):
    listed = {name.removeprefix("data: ") for name in named(doctor.examine(str(tmp_path))) if name.startswith("data: ")}
    assert listed == set(DATASETS) - {"digits", "folder", "features"}


@pytest.mark.realdata
def test_real_data_is_found(quiet, data_root):
    checks = named(doctor.examine(str(data_root)))
    for name in ("office31", "office-caltech10-surf"):
        assert checks[f"data: {name}"].status == "ok"
    assert checks["data: digit-five"].found != "nothing"


def test_low_memory_and_disk_are_problems(quiet, monkeypatch):
    monkeypatch.setattr(doctor, "LOW_MEMORY_GB", 1e9)
    monkeypatch.setattr(doctor, "LOW_DISK_GB", 1e9)
    checks = doctor.examine()
    assert named(checks)["memory"].status == named(checks)["disk"].status == "problem"
    assert not doctor.healthy(checks)


def test_a_missing_package_is_a_problem(quiet, monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("no-such-package",))
    check = named(doctor.examine())["no-such-package"]
    assert (check.status, check.advice) == ("problem", "pip install no-such-package")


@pytest.mark.parametrize("package", ["torch", "torchvision", "wandb"])
def test_a_package_that_cannot_be_imported_is_reported(quiet, monkeypatch, package):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    checks = named(doctor.examine())
    affected = {"torch": "gpu", "torchvision": "torch pair", "wandb": "wandb login"}[package]
    assert checks[affected].status != "ok"
    assert checks[affected].advice


def test_square_brackets_are_shown_as_they_are():
    console = Console(record=True, width=200)
    doctor.render([doctor.Check("weights", "missing", "not installed", "pip install 'fedrf[weights]'")], console)
    assert "pip install 'fedrf[weights]'" in console.export_text()


def test_wandb_login_state(quiet, monkeypatch, tmp_path):
    import wandb

    def status():
        return named(doctor.examine())["wandb login"].status

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


def test_json(quiet):
    done = subprocess.run([sys.executable, "-m", "fedrf", "doctor", "--json"], capture_output=True, text=True)
    assert {"name": "wandb login", "status": "ok", "found": "not needed: WANDB_MODE=offline", "advice": ""} in (
        json.loads(done.stdout)
    )


def test_a_cluster_that_does_not_answer_is_a_problem(quiet, monkeypatch):
    def refuse(address):
        raise ConnectionError(f"no Ray cluster answers at {address!r}")

    monkeypatch.setattr(doctor, "cluster_resources", refuse)
    check = named(doctor.examine(address="10.0.0.1:6379"))["ray cluster"]
    assert check.status == "problem"
    assert "10.0.0.1:6379" in check.found


@pytest.mark.ray
def test_a_cluster_is_asked_what_it_has(quiet):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 3})
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fedrf", "doctor", "--address", cluster.address, "--json"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = {check["name"]: check["found"] for check in json.loads(done.stdout)}["ray cluster"]
        assert found.startswith("1 nodes, 2 CPUs, 3 GPUs")
    finally:
        cluster.shutdown()


def test_what_backbones_keep_on_disk_is_told(quiet, monkeypatch, tmp_path):
    import numpy as np

    from fedrf.models.trunk_cache import Entry

    monkeypatch.setenv("FEDRF_CACHE", str(tmp_path))
    monkeypatch.setenv("FEDRF_CACHE_GB", "5")
    rows = np.ones((1000, 2500), dtype=np.float32)
    Entry.reserve("key", 1000, rows[0], np.arange(1000)).write(np.arange(1000), rows)
    check = named(doctor.examine())["backbone cache"]
    assert (check.status, check.found) == ("ok", f"0.01 of at most 5 GB in {tmp_path}")
    monkeypatch.setenv("FEDRF_CACHE_GB", "much")
    assert named(doctor.examine())["backbone cache"].status == "problem"
