"""Async mode: sources whose checkpoints are newer than the coordinator's state send again what it does not have."""

import threading
import time

import pytest

import fedrf
from fedrf.errors import RunFailedError
from fedrf.federation.module import FederatedModule
from tests.conftest import TINY

ROUNDS = 4
SETTINGS = {
    **TINY,
    "train.rounds": ROUNDS,
    "federation.mode": "async",
    "federation.checkpoint_seconds": 0,
    "adapt.when": "joint",
}


@pytest.mark.parametrize("more", [{}, {"federation.prediction": "vote", "adapt.when": "never"}])
def test_sources_that_saved_after_their_last_round_send_it_again(tmp_path, monkeypatch, more):
    """The first version begins before the sources have sent their last parts, and they save it afterwards."""
    step, commit = FederatedModule.training_step, FederatedModule.commit
    target_began, sources_ended = threading.Event(), threading.Semaphore(0)
    version = tmp_path / "run/checkpoints/coordinator/000001.safetensors"

    def training_step(module, batch, index):
        if module.schedule.is_target and batch.round == 1:
            for _ in range(3):
                sources_ended.acquire()
        if module.schedule.is_target and batch.round == 2:
            while not version.exists():
                time.sleep(0.01)
            raise RuntimeError("stopped by the test")
        step(module, batch, index)
        if module.schedule.is_target:
            target_began.set()
        elif batch.round == ROUNDS:
            sources_ended.release()

    def commit_later(module):
        if not module.schedule.is_target:
            target_began.wait()
        return commit(module)

    with monkeypatch.context() as patch:
        patch.setattr(FederatedModule, "training_step", training_step)
        patch.setattr(FederatedModule, "commit", commit_later)
        with pytest.raises(RunFailedError, match="stopped by the test"):
            fedrf.run(None, {**SETTINGS, **more}, out=tmp_path / "run", local=True)
    assert fedrf.run(resume=tmp_path / "run", local=True).finished
