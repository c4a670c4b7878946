"""Workers of Ray are forks of one process that has imported what clients need."""

import os
import subprocess
import sys
import time

import psutil
import pytest
import ray

from fedrf.config.schema import ResourcesConfig
from fedrf.runtime.ray import RaySession, forked_worker
from fedrf.runtime.ray.pool import can_fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
PROGRAM = """
import os, sys
is_imported = "fedrf.federation.worker" in sys.modules
print(os.getppid(), sys.argv[2], os.environ["GREETING"], os.getcwd(), is_imported, flush=True)
sys.exit(7)
"""


def start(folder, arguments=(), **environment):
    """Start a program as Ray would, with a folder for the socket of the process that forks."""
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-P", forked_worker.__file__, str(folder / "program.py")]
    return subprocess.Popen(
        [*command, f"--raylet-name={folder}/raylet", *arguments],
        env=os.environ | {"GREETING": "hello"} | environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def raylet():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_programs_run_in_forks_of_one_process_which_ends_with_the_session(tmp_path, raylet):
    first = start(tmp_path, ["a"], RAY_RAYLET_PID=str(raylet.pid))
    output = first.communicate()[0].split()
    second = start(tmp_path, ["b"], RAY_RAYLET_PID=str(raylet.pid), GREETING="again")
    again = second.communicate()[0].split()
    assert (first.returncode, second.returncode) == (7, 7)
    assert output[1:] == ["a", "hello", str(tmp_path), "True"]
    assert again[0] == output[0]
    assert again[2] == "again"
    server = psutil.Process(int(output[0]))
    assert "--serve" in server.cmdline()
    raylet.kill()
    raylet.wait()
    server.wait(10)


def test_a_program_is_ended_with_the_process_that_ray_started(tmp_path, raylet):
    (tmp_path / "sleep.py").write_text("import time; print('here', flush=True); time.sleep(600)")
    process = start(tmp_path, ["x"], RAY_RAYLET_PID=str(raylet.pid))
    server = psutil.Process(int(process.communicate()[0].split()[0]))
    command = [
        sys.executable,
        "-P",
        forked_worker.__file__,
        str(tmp_path / "sleep.py"),
        f"--raylet-name={tmp_path}/raylet",
    ]
    with subprocess.Popen(
        command, env=os.environ | {"RAY_RAYLET_PID": str(raylet.pid)}, stdout=subprocess.PIPE
    ) as shim:
        shim.stdout.readline()
        (worker,) = server.children()
        shim.kill()
        worker.wait(10)


def test_without_a_process_that_forks_the_program_runs_in_the_usual_way(tmp_path):
    process = start(tmp_path, ["x"], RAY_RAYLET_PID="not a number")
    output = process.communicate()[0].split()
    assert (process.returncode, output[-1], int(output[0])) == (7, "False", os.getpid())


@pytest.mark.ray
def test_client_actors_are_forks_also_after_a_crash(ray_session):
    resources = ResourcesConfig(cpus_per_client=0.5, gpus_per_client=0)
    assert can_fork(0.0)
    assert not can_fork(0.5)
    with RaySession() as session:  # beside that of the other tests
        pool = session.acquire(("a", "b"), resources)
        session.give_back(pool)  # so that the actors are stopped whatever happens
        processes = [psutil.Process(ray.get(actor.where.remote())["pid"]) for actor in pool.actors.values()]
        (server,) = {process.parent() for process in processes}
        assert "--serve" in server.cmdline()
        processes[0].kill()
        again = pool.actors[0].where.options(max_task_retries=-1).remote()
        restarted = psutil.Process(ray.get(again)["pid"])
        assert restarted.pid != processes[0].pid
        assert restarted.parent() == server
