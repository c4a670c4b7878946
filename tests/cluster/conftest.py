import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from secrets import token_hex

import psutil
import pytest
from ray.job_submission import JobSubmissionClient

ROOT = Path(__file__).parents[2]


class Head:
    """A Ray head on this machine that requires a token, with another home folder than the caller."""

    def __init__(self, folder):
        self.home, self.log, token = folder / "home", folder / "head.log", folder / "token"
        self.home.mkdir()
        self.runs = self.home / "fedrf-runs"
        token.write_text(token_hex(32))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.without_token = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "WANDB_"))}
        self.without_token |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "PATH": path}
        self.environment = {**self.without_token, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        dashboard, clients = free_ports(2)
        self.address = f"http://127.0.0.1:{dashboard}"
        self.temporary = tempfile.TemporaryDirectory(
            prefix="ray-"
        )  # not pytest's, because the path of a socket must be short
        settings = {
            "--port": 0,
            "--dashboard-host": "127.0.0.1",
            "--dashboard-port": dashboard,
            "--dashboard-agent-listen-port": 0,
            "--ray-client-server-port": clients,
            "--num-cpus": 8,
            "--object-store-memory": 200_000_000,
            "--temp-dir": self.temporary.name,
        }
        words = [str(word) for pair in settings.items() for word in pair]
        self.process = subprocess.Popen(
            ["ray", "start", "--head", "--block", *words],
            env={**self.environment, "HOME": str(self.home)},
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
        )
        self.callers = []
        deadline = time.monotonic() + 300
        while "Ray runtime started" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)
        # Not by RAY_AUTH_MODE, which would also apply to every other Ray in this process.
        headers = {"authorization": f"Bearer {token.read_text()}"}
        self.client = JobSubmissionClient(self.address, headers=headers)

    def submit(self, folder, *words, **settings):
        """Start `cluster/submit ADDRESS` in a folder; `words` are options, `--` and a command."""
        process = subprocess.Popen(
            [ROOT / "cluster/submit", self.address, *map(str, words)],
            cwd=folder,
            **{"env": self.environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings},
        )
        self.callers.append(process)
        return process

    def processes(self):
        return psutil.Process(self.process.pid).children(recursive=True)

    def close(self):
        for process in self.callers:
            process.kill()  # left by a test that failed
        family = [psutil.Process(self.process.pid), *self.processes()]
        self.process.terminate()
        for process in psutil.wait_procs(family, timeout=30)[1]:
            process.kill()
        self.process.wait()
        self.temporary.cleanup()


def free_ports(count):
    """Return ports above those that Ray uses for its workers."""
    sockets = []
    while len(sockets) < count:
        server = socket.create_server(("127.0.0.1", 0))
        if server.getsockname()[1] > 20_000:
            sockets.append(server)
    numbers = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return numbers


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    started = Head(tmp_path_factory.mktemp("head"))
    yield started
    started.close()
