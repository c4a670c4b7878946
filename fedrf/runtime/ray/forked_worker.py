"""Starts Ray's workers as forks of a process that has imported what clients need.

Clients on one machine then import torch and Lightning once and share the memory of these modules. Ray runs this file in
the place of `python` (`py_executable` of a runtime environment). The first worker of a Ray job starts the process that
forks, which ends with Ray, or soon after its last worker. If that fails, the worker is started in the usual way.

The file imports the standard library only, because it runs once for each worker.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import shlex
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

IMPORTS = ("ray", "fedrf.federation.worker")
IMPORT_SECONDS = 120.0
LOOK_SECONDS = 0.2  # between two looks at what has ended
IDLE_SECONDS = 30.0  # without a worker, after which the process that forks ends
# Ray reads the job when it is imported, too.
READ_BY_IMPORTS = ("RAY_JOB_ID", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONPATH")


def command() -> str:
    """Return what Ray runs in the place of `python`."""
    return shlex.join([sys.executable, "-P", os.path.abspath(__file__)])


def run_worker(arguments: list[str]) -> int:
    """Let a fork run the worker; return its exit code when it has ended."""
    try:
        server = _connect(_address(arguments))
        request = json.dumps(_request(arguments)).encode()
        socket.send_fds(server, [len(request).to_bytes(8, "little")], [0, 1, 2])
        server.sendall(request)
        is_started = server.recv(1)
    except (OSError, StopIteration):
        is_started = b""
    if not is_started:
        os.execv(sys.executable, [sys.executable, *arguments])
    return (server.recv(1) or b"\1")[0]


def _request(arguments: list[str]) -> dict[str, Any]:
    mask = os.umask(0o077)
    os.umask(mask)
    return {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd(), "mask": mask}


def _address(arguments: list[str]) -> str:
    """Return the socket of the process that forks: one for each session, job, interpreter and environment."""
    session = os.path.dirname(next(item for item in arguments if item.startswith("--raylet-name=")).partition("=")[2])
    key = json.dumps([sys.executable, __file__, [os.environ.get(name) for name in READ_BY_IMPORTS]])
    return os.path.join(session, f"fedrf-{hashlib.sha256(key.encode()).hexdigest()[:8]}")


def _connect(address: str) -> socket.socket:
    """Connect to the process that forks, after starting it if there is none."""
    with open(f"{address}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(OSError):
            return _try_to_connect(address)
        command = [sys.executable, "-P", __file__, "--serve", address, os.environ["RAY_RAYLET_PID"]]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        end = time.monotonic() + IMPORT_SECONDS
        while process.poll() is None and time.monotonic() < end:
            with suppress(OSError):
                return _try_to_connect(address)
            time.sleep(LOOK_SECONDS / 10)
        raise ConnectionError("the process that forks has not started")


def _try_to_connect(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


class Server:
    """The process that forks.

    Parameters
    ----------
    address
        Its socket.
    raylet
        The process of Ray on this node, with which it ends.
    """

    def __init__(self, address: str, raylet: int) -> None:
        self.raylet = raylet
        self._workers: dict[int, socket.socket] = {}
        with suppress(FileNotFoundError):
            os.unlink(address)
        self._listener = socket.socket(socket.AF_UNIX)
        os.umask(0o077)  # others must not start workers; each worker has the mask of its own process
        self._listener.bind(address)
        self._listener.listen()

    def run(self) -> None:
        """Fork workers until the Ray session ends, or no worker has been left for a while."""
        last = time.monotonic()
        while os.path.exists(f"/proc/{self.raylet}") and time.monotonic() < last + IDLE_SECONDS:
            last = time.monotonic() if self._workers else last
            connections = list(self._workers.values())
            for ready in select.select([self._listener, *connections], [], [], LOOK_SECONDS)[0]:
                if ready is self._listener:
                    self._start_worker(self._listener.accept()[0])
                else:
                    self._end_worker(ready)
            self._collect_ended()

    def _start_worker(self, connection: socket.socket) -> None:
        size, files, _, _ = socket.recv_fds(connection, 8, 3)
        request = b""
        while len(request) < int.from_bytes(size, "little"):
            if not (piece := connection.recv(2**16)):
                return
            request += piece
        worker = os.fork()
        if not worker:
            self._listener.close()
            for other in (connection, *self._workers.values()):
                other.close()
            become_worker(**json.loads(request), files=files)
        for file in files:
            os.close(file)
        self._workers[worker] = connection
        connection.sendall(b"\1")

    def _end_worker(self, connection: socket.socket) -> None:
        """End the worker of a process that Ray has ended."""
        worker = next(worker for worker, other in self._workers.items() if other is connection)
        os.kill(worker, 9)

    def _collect_ended(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with self._workers.pop(ended[0]) as connection, suppress(OSError):
                    connection.sendall(bytes([os.waitstatus_to_exitcode(ended[1]) & 255]))


def become_worker(
    arguments: list[str], environment: dict[str, str], folder: str, mask: int, files: list[int]
) -> NoReturn:
    """Go on as the Ray worker with these arguments; does not return."""
    import runpy

    os.setpgid(0, 0)  # Ray ends the process group of a worker
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.umask(mask)
    arguments = [argument for argument in arguments if argument != "-u"]
    sys.argv, sys.path = arguments, [os.path.dirname(arguments[0]), *sys.path]
    runpy.run_path(arguments[0], run_name="__main__")
    sys.exit(0)


def main() -> None:
    """Run a worker, or the process that forks."""
    if sys.argv[1] != "--serve":
        sys.exit(run_worker(sys.argv[1:]))
    import gc
    import importlib

    for name in IMPORTS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection would touch, and so copy, what the forks share
    Server(sys.argv[2], int(sys.argv[3])).run()


if __name__ == "__main__":
    main()
