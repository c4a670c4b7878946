"""Several hosts on one machine: network namespaces on a bridge, each with its own address and Ray node.

If namespaces are not allowed, several Ray nodes at this host's address.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from secrets import token_hex

import psutil

from tests.cluster.conftest import free_ports

RAY = Path(sys.executable).parent / "ray"
NETWORK = "10.77.0"


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def namespaces_work():
    """Return whether this machine allows network namespaces."""
    name = f"fedrf-probe-{os.getpid()}"
    try:
        created = ip("netns", "add", name, check=False).returncode == 0
    except FileNotFoundError:
        return False
    if created:
        ip("netns", "delete", name)
    return created


class Hosts:
    """Hosts with a Ray node each, the head first.

    `resources` are the custom resources of each, as JSON. Only the head sees the folder `hidden`: the others have an
    empty one in its place, which needs namespaces.
    """

    def __init__(self, *resources, hidden=None):
        self.hidden = hidden
        self.names = [f"fedrf-{os.getpid()}-{number}" for number in range(len(resources))]
        self.isolated = namespaces_work()
        self.addresses = [
            f"{NETWORK}.{number + 1}" if self.isolated else "127.0.0.1" for number in range(len(resources))
        ]
        self.head = f"{self.addresses[0]}:{6379 if self.isolated else free_ports(1)[0]}"
        self.temporary = tempfile.TemporaryDirectory(prefix="ray-")
        self.token = Path(self.temporary.name) / "token"
        self.token.write_text(token_hex(32))
        self.processes = []
        try:
            for number in range(len(resources)):
                self._connect(number)
            for number, offered in enumerate(resources):  # one after the other: their sockets are in the same folder
                self._start(number, offered)
        except BaseException:
            self.close()
            raise

    def _connect(self, number):
        """Create a namespace that is connected to a bridge in the first one."""
        if not self.isolated:
            return
        name, head = self.names[number], self.names[0]
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        if number == 0:
            ip("-n", head, "link", "add", "bridge", "type", "bridge")
            ip("-n", head, "address", "add", f"{NETWORK}.1/24", "dev", "bridge")
            ip("-n", head, "link", "set", "bridge", "up")
            return
        ip("-n", head, "link", "add", f"to{number}", "type", "veth", "peer", "name", "wire", "netns", name)
        ip("-n", head, "link", "set", f"to{number}", "master", "bridge", "up")
        ip("-n", name, "address", "add", f"{self.addresses[number]}/24", "dev", "wire")
        ip("-n", name, "link", "set", "wire", "up")

    def _start(self, number, offered):
        role = (
            [
                "--head",
                f"--port={self.head.split(':')[1]}",
                "--include-dashboard=false",
                f"--temp-dir={self.temporary.name}",
            ]
            if number == 0
            else [f"--address={self.head}"]
        )
        words = [f"--node-ip-address={self.addresses[number]}", f"--resources={offered}", "--num-cpus=2"]
        log = Path(self.temporary.name) / f"host{number}.log"
        self.processes.append(
            self.run(number, RAY, "start", "--block", *role, *words, "--object-store-memory=100000000", stdout=log)
        )
        self._wait_until_alive(number, log)

    def _wait_until_alive(self, number, log):
        deadline = time.monotonic() + 300
        while "--block" not in (log.read_text() if log.exists() else ""):  # printed when the node is up
            assert self.processes[number].poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

    def run(self, number, *words, stdout=None):
        """Start a command on a host."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        environment |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}
        place = ("ip", "netns", "exec", self.names[number]) if self.isolated else ()
        if self.hidden and number:  # in the mount namespace that `ip netns exec` makes
            place = (*place, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(self.hidden))
        return subprocess.Popen(
            [*place, *map(str, words)],
            env=environment,
            stdout=stdout.open("w") if stdout else subprocess.PIPE,
            stderr=subprocess.STDOUT if stdout else subprocess.PIPE,
            text=True,
        )

    def close(self):
        family = [psutil.Process(process.pid) for process in self.processes if process.poll() is None]
        family += [child for process in family for child in process.children(recursive=True)]
        for process in reversed(self.processes):
            process.terminate()
        for process in psutil.wait_procs(family, timeout=30)[1]:
            process.kill()
        for process in self.processes:
            process.wait()
        for name in self.names if self.isolated else ():
            ip("netns", "delete", name, check=False)
        self.temporary.cleanup()
