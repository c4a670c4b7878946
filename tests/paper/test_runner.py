"""Jobs are run once, side by side, and one that fails does not stop the others."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedrf.paper.jobs import JobStore
from fedrf.paper.plan import job
from fedrf.paper.runner import run_jobs
from fedrf.paper.setting import Setting
from tests.paper.computations import TINY_RUN


def computation(name, **settings):
    return job(f"tests.paper.computations:{name}", settings, 1.0)


def run(store, *jobs, processes=2, **options):
    by_name = {item.digest: item for item in jobs}
    titles = {digest: item.function.rpartition(":")[2] for digest, item in by_name.items()}
    return run_jobs(by_name, store, titles, processes, **options)


def test_results_are_kept_and_not_computed_again(tmp_path, capsys):
    store, jobs = JobStore(tmp_path), [computation("double", x=x) for x in range(5)]
    ended = []
    assert run(store, *jobs, on_end=ended.append) == ({}, True)
    assert [store.result(item)["values"] for item in jobs] == [{"accuracy": 2 * x} for x in range(5)]
    assert {item.digest for item in ended} == {item.digest for item in jobs}
    assert "5 to run" in capsys.readouterr().err
    assert run(store, *jobs, computation("double", x=7)) == ({}, True)
    assert "5 of 6 jobs are already finished; 1 to run" in capsys.readouterr().err
    assert all((store.folder_of(item) / "calls").read_text() == "x" for item in jobs)


def test_a_job_that_fails_is_reported_with_its_reason_and_the_others_continue(tmp_path, capsys):
    store, good, bad = JobStore(tmp_path), [computation("double", x=x) for x in range(3)], computation("fail")
    errors, complete = run(store, bad, *good)
    assert errors == {bad.digest: "ValueError: no such thing"}
    assert complete
    assert all(store.result(item) for item in good)
    assert store.result(bad) is None
    assert "failed: ValueError: no such thing" in capsys.readouterr().err


def test_a_process_that_dies_does_not_stop_the_others(tmp_path):
    store, good, bad = JobStore(tmp_path), [computation("double", x=x) for x in range(4)], computation("die")
    errors, complete = run(store, bad, *good)
    assert complete
    assert list(errors) == [bad.digest]
    assert "its process died" in errors[bad.digest]
    assert all(store.result(item) for item in good)


def test_a_job_whose_process_died_once_is_tried_again(tmp_path):
    store, item = JobStore(tmp_path), computation("die_once")
    assert run(store, item) == ({}, True)
    assert store.result(item)["values"] == {"accuracy": 1.0}


SCRIPT = """
import sys
from pathlib import Path
from fedrf.paper.jobs import JobStore
from fedrf.paper.runner import run_jobs
from fedrf.paper.setting import Setting

if __name__ == "__main__":
    settings = {"data.name": "digits", "data.target": "street", "data.sources": ["rendered"], "data.samples": 60}
    jobs = [Setting(True).run(seed, {**settings, "method": "fedavg", "train.rounds": 20}) for seed in range(40)]
    by_digest = {job.digest: job for job in jobs}
    errors, complete = run_jobs(by_digest, JobStore(Path(sys.argv[1])), dict.fromkeys(by_digest, "run"), 2)
    print(f"errors {errors} complete {complete}", file=sys.stderr)
"""


def test_ctrl_c_ends_after_the_jobs_that_run(tmp_path):
    """The terminal signals the whole process group; a federated run in a job must not see it."""
    script, root = tmp_path / "script.py", Path(__file__).parents[2]
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "runs")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    while not list(tmp_path.glob("runs/*/result.json")):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "errors {} complete False" in err
    assert 0 < len(list(tmp_path.glob("runs/*/result.json"))) < 40


def test_names_of_jobs_depend_on_everything_but_the_data_root():
    assert computation("double", x=1, root="/a").digest == computation("double", x=1, root="/b").digest
    assert computation("double", x=1).digest != computation("double", x=2).digest
    assert computation("double", x=1).digest != computation("fail", x=1).digest
    settings = {"data.name": "digits", "data.target": "street", "data.sources": ["rendered"]}
    first, other = (Setting(True, root).run(0, settings) for root in ("/a", "/b"))
    assert first.digest == other.digest
    assert first.digest != Setting(True).run(1, settings).digest


@pytest.mark.ray
def test_jobs_run_side_by_side_on_a_ray_cluster(tmp_path, ray_session):
    """Federated runs as actors, with the same result as in a process, and a failing job beside them."""
    jobs = [Setting(True).run(seed, TINY_RUN) for seed in (0, 1)]
    there, here = JobStore(tmp_path / "there"), JobStore(tmp_path / "here")
    bad = computation("fail")
    errors, complete = run(there, *jobs, bad, address="auto")
    assert complete
    assert list(errors) == [bad.digest]
    assert "no such thing" in errors[bad.digest]
    assert run(here, *jobs) == ({}, True)
    for item in jobs:
        first, second = there.result(item)["values"], here.result(item)["values"]
        assert {**first, "seconds": 0} == {**second, "seconds": 0}
        assert not list((there.folder_of(item) / "run").glob("checkpoints/*"))
        assert json.loads((there.folder_of(item) / "run" / "summary.json").read_text())["status"] == "finished"
