"""W&B: offline runs need no account, and online runs never ask for a login."""

import time

import pytest
import wandb

import fedrf
from tests.conftest import TINY


def run_offline(folder):
    """Return a run with all trackers, after W&B has recorded it."""
    settings = {**TINY, "track.wandb": "offline", "track.tensorboard": True}
    result = fedrf.run(None, settings, out=folder, local=True)
    recorded = list(result.folder.glob("wandb/offline-run-*/*.wandb"))
    assert len(recorded) == 1
    expected = (b"fedrf-plus-handwritten-s0", b"digits-handwritten", b"street/loss", b"target_accuracy")
    # W&B writes the file in a process of its own, which can lag behind on a busy machine.
    until = time.monotonic() + 60
    while missing := [text for text in expected if text not in recorded[0].read_bytes()]:
        assert time.monotonic() < until, missing
        time.sleep(0.1)
    return result


def test_offline_needs_no_account_and_records_the_run(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    result = run_offline(tmp_path / "run")
    assert len(list(result.folder.glob("tensorboard/*/events*"))) == 4


def test_no_file_of_a_run_holds_the_key(tmp_path, monkeypatch):
    key = "0123456789abcdef0123456789abcdef89abcdef"
    monkeypatch.setenv("WANDB_API_KEY", key)
    wandb.teardown()  # it reads the environment once in a process
    folder = run_offline(tmp_path / "run").folder
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"config.yaml", "summary.json", "debug.log", "debug-internal.log"} <= {path.name for path in files}
    parts = [key[:20].encode(), key[-20:].encode()]  # a part of it would be too much
    assert [path for path in files if any(part in path.read_bytes() for part in parts)] == []


def test_online_without_a_key_is_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"track\.wandb=online needs a key: run `wandb login`"):
        fedrf.run(None, {**TINY, "track.wandb": "online"}, out=tmp_path / "run", local=True)
    assert not (tmp_path / "run").exists()
