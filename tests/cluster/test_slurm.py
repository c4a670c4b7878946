"""cluster/slurm.sh, with replacements of SLURM's commands that run each task on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "cluster/slurm.sh"
REPLACEMENTS = {
    "scontrol": "tr , '\\n' <<< \"$3\"",
    "srun": 'while [[ $1 == --* ]]; do shift; done\nexec "$@"',
}
# Prints what it can see of the cluster, then waits for a signal to stop.
COMMAND = """
import json, os, signal, subprocess, sys

import ray

ray.init(log_to_driver=False, logging_level="ERROR")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
ask = ["ray", "health-check", "--address", os.environ["RAY_ADDRESS"]]
checks = [subprocess.Popen(ask, env=os.environ | extra, stderr=subprocess.DEVNULL)
          for extra in ({}, {"RAY_AUTH_TOKEN": "0" * 64})]
answers = [check.wait() for check in checks]
mode = os.stat(os.environ["RAY_AUTH_TOKEN_PATH"]).st_mode & 0o777
print(json.dumps({"resources": ray.cluster_resources(), "answers": answers, "mode": mode}), flush=True)
signal.pause()
"""


@pytest.fixture
def job(tmp_path):
    """The environment of a job on two nodes, with its own home folder and commands."""
    (tmp_path / "bin").mkdir()
    for name, body in REPLACEMENTS.items():
        add_command(tmp_path, name, body)
    path = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "north,south", "SLURM_CPUS_PER_TASK": "1"}
    return os.environ | slurm | {"PATH": path, "HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}


def add_command(folder, name, body):
    command = folder / "bin" / name
    command.write_text(f"#!/bin/bash\n{body}\n")
    command.chmod(0o755)


def leftovers(job):
    """Return files and processes that a job has left."""
    folder = f"/tmp/ray-{job['SLURM_JOB_ID']}"
    files = [*Path(job["HOME"], ".ray").iterdir(), *Path("/tmp").glob(Path(folder).name)]
    processes = [process for process in psutil.process_iter() if any(folder in word for word in words(process))]
    _, alive = psutil.wait_procs(processes, timeout=20)
    return files + alive


def words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.cluster
def test_a_command_runs_on_all_nodes_and_everything_ends_with_it(job, tmp_path):
    script = subprocess.Popen(
        [SCRIPT, "python", "-c", COMMAND],
        cwd=tmp_path,
        env=job,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = next(json.loads(line) for line in script.stdout if line.startswith('{"resources"'))
    assert printed["resources"] | {"north": 1, "south": 1, "CPU": 2, "object_store_memory": 4e9} == printed["resources"]
    assert printed["answers"] == [0, 1]  # with the right token, and with a wrong one
    assert printed["mode"] == 0o600
    script.terminate()  # as SLURM does shortly before the time limit
    script.stdout.read()
    assert script.wait(60) == 7
    assert leftovers(job) == []


def test_a_node_that_cannot_start_ray_ends_the_job(job, tmp_path):
    add_command(tmp_path, "ray", "echo no memory >&2; exit 3")
    result = subprocess.run([SCRIPT, "true"], cwd=tmp_path, env=job, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.splitlines() == ["no memory", "Ray did not start on north; see above"]
    assert leftovers(job) == []


@pytest.mark.parametrize(("inside", "arguments"), [(True, []), (False, ["true"])])
def test_a_wrong_call(job, inside, arguments):
    if not inside:
        del job["SLURM_JOB_ID"]
    result = subprocess.run([SCRIPT, *arguments], env=job, capture_output=True, text=True)
    assert (result.returncode, result.stderr[:13]) == (2, "usage: sbatch")
