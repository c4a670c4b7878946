"""Out of memory: a client that Ray ends because its machine is short of memory, and one whose allocation fails."""

import json
import os
import subprocess
import sys

import psutil
import pytest

import fedrf
from fedrf.errors import RunFailedError
from fedrf.federation.module import FederatedModule
from tests.conftest import SYNC, final_weights
from tests.faults.schedules import Schedule

GIGABYTE = 2**30
SHORTAGE = 5 * GIGABYTE  # what Ray leaves to processes, besides what is used now; the run needs about half of it


@pytest.mark.ray
@pytest.mark.endurance
@pytest.mark.parametrize("victim", ["street", "handwritten"])
def test_a_client_that_ray_ends_for_want_of_memory_is_restarted(tmp_path, victim):
    """Ray's memory monitor sees a real shortage and ends a process with SIGKILL."""
    memory = psutil.virtual_memory()
    if memory.available < 2 * SHORTAGE:
        pytest.skip("needs 10 GB of free memory")
    threshold = (memory.total - memory.available + SHORTAGE) / memory.total
    schedule = Schedule("fedrf-plus", "sync", victim, "before sending", 3, "memory")
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.shortage", tmp_path, *map(str, schedule)],
        env={**os.environ, "RAY_memory_usage_threshold": f"{threshold:.3f}", "RAY_memory_monitor_refresh_ms": "100"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"has_struck": True, "text": "same bits"}
    events = [json.loads(line) for line in (tmp_path / "run/run.log").read_text().splitlines()]
    assert any("was lost" in event["text"] for event in events if event["event"] == "failure")


@pytest.mark.parametrize("client", ["street", "handwritten"])
def test_an_allocation_that_fails_ends_the_run_which_can_be_continued(tmp_path, monkeypatch, client):
    expected = final_weights(fedrf.run(None, SYNC, out=tmp_path / "undisturbed", local=True))
    mean_embedding, calls = FederatedModule.mean_embedding, []

    def greedy(module, features):
        if module.schedule.name == client:
            calls.append(client)
            if len(calls) == 4:
                features.new_empty(2**50)
        return mean_embedding(module, features)

    with monkeypatch.context() as patch:
        patch.setattr(FederatedModule, "mean_embedding", greedy)
        with pytest.raises(RunFailedError, match=f"^{client} failed: .*memory") as error:
            fedrf.run(None, SYNC, out=tmp_path / "run", local=True)
    assert len(str(error.value).splitlines()) == 1
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert final_weights(resumed) == expected
