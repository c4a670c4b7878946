"""What a client leaves in a process that goes on: nothing, without waiting for a garbage collection."""

import gc
import weakref

import pytest

import fedrf
from fedrf.errors import RunFailedError
from fedrf.federation.client import Client
from fedrf.federation.module import FederatedModule
from tests.conftest import TINY

SMALL = {**TINY, "data.samples": 60, "train.rounds": 2, "adapt.steps": 2}


@pytest.fixture
def kept(monkeypatch):
    """References to every client, its network, a parameter and the samples; the collector of cycles is off."""
    references, run = [], Client.run

    def recorded(self):
        for item in (self, self.module, self.module.aligner, self.module.samples, self.module.samples.rows):
            references.append(weakref.ref(item))
        run(self)

    monkeypatch.setattr(Client, "run", recorded)
    gc.disable()
    yield references
    gc.enable()


@pytest.mark.parametrize("method", ["fedrf-oneshot", "fedrf-tca", "kd3a", "autodial", "source-only", "pooled-dann"])
def test_a_client_that_has_ended_is_gone(kept, tmp_path, method):
    fedrf.run(None, {**SMALL, "method": method}, out=tmp_path / "run", local=True)
    assert len(kept) in (10, 20)  # a pool has two clients
    assert [reference() for reference in kept if reference() is not None] == []


def test_a_client_that_has_failed_is_gone_while_its_error_is_kept(kept, tmp_path, monkeypatch):
    def fail(self, *arguments):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(FederatedModule, "losses", fail)
    with pytest.raises(RunFailedError, match="CUDA out of memory") as error:
        fedrf.run(None, SMALL, out=tmp_path / "run", local=True)
    assert len(kept) == 20
    assert [reference() for reference in kept if reference() is not None] == []
    assert error.value.__cause__ is not None
