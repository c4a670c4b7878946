"""Ray's token file can be read by its owner alone."""

import os
import re
import subprocess
import sys

import pytest

from fedrf.runtime.ray.auth_token import keep_token_private

TOKEN = re.compile("[0-9a-f]{64}")
START = """
from fedrf.runtime.ray import RaySession
import ray

with RaySession():
    print(ray.cluster_resources()["CPU"])
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".ray/auth_token"


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.ray
def test_ray_starts_with_a_token_that_only_its_owner_can_read(file):
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, umask=0o022, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert TOKEN.fullmatch(file.read_text())


def test_a_token_is_created_once(file):
    keep_token_private()
    token = file.read_text()
    keep_token_private()
    assert file.read_text() == token
    assert TOKEN.fullmatch(token)
    assert [path.name for path in file.parent.iterdir()] == ["auth_token"]


def test_the_mode_of_a_file_that_ray_created_is_repaired(file):
    file.parent.mkdir()
    file.write_text("token")
    file.chmod(0o644)
    keep_token_private()
    assert (file.read_text(), mode(file)) == ("token", 0o600)


@pytest.mark.parametrize(
    ("name", "value"), [("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "0" * 64), ("RAY_AUTH_TOKEN_PATH", "shared")]
)
def test_no_file_is_created_if_ray_does_not_read_it(file, name, value, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.write_text("token")
    shared.chmod(0o644)
    monkeypatch.setenv(name, str(shared) if value == "shared" else value)
    keep_token_private()
    assert not file.exists()
    assert mode(shared) == 0o644


def test_a_home_folder_that_is_a_file_is_left_to_ray(file):
    file.parent.write_text("")
    keep_token_private()
