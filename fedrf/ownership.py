"""One process owns a run directory at a time, also on a file system that several machines share.

`owner.json` names the owner, which renews the file's time while it works. Another process may take over when the owner
has ended or has not renewed the file for a minute. All that write to the directory hold the token of the owner that
started them, and check it before they write: processes of an earlier owner can no longer write.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedrf.files import write_atomically

LEASE_SECONDS = 60.0  # without renewal, after which the owner counts as gone
RENEW_SECONDS = 5.0
SETTLE_SECONDS = 0.3  # in which others that take over at the same moment write their names

_HELD: set[str] = set()  # tokens of this process: a file that could not be deleted does not count


class RunTakenOverError(RuntimeError):
    """Another process has continued this run."""


class Fence:
    """Lets the processes of one owner write to a run directory, as long as nobody has taken it over.

    Parameters
    ----------
    run
        The run directory.
    token
        Of the owner that started this process.
    """

    def __init__(self, run: Path, token: str) -> None:
        self.run, self.token = run, token

    def check(self) -> None:
        """Raise `RunTakenOverError` if the token is no longer valid."""
        if (_read(self.run) or {}).get("token") != self.token:
            raise RunTakenOverError(f"{self.run} has been taken over by another process")


class Owner:
    """The ownership of a run directory by this process.

    Attributes
    ----------
    fence
        For all that write to the directory. `renew_fence` replaces it, which excludes those that hold the one before.
    """

    def __init__(self, run: Path) -> None:
        self.run, self._identity = run, _identity()
        self.fence = Fence(run, uuid4().hex)
        self._released = threading.Event()

    @classmethod
    def claim(cls, run: Path) -> Owner:
        """Become the owner of an existing directory; a `ValueError` if another process uses it."""
        owner = cls(run)
        try:
            _create(run / "owner.json", owner._content())
        except FileExistsError:
            other = _read(run)
            if _is_alive(run, other):
                raise ValueError(_in_use(run, other)) from None
            owner._write()
            time.sleep(SETTLE_SECONDS)
            if (winner := _read(run) or {}).get("token") != owner.fence.token:
                raise ValueError(_in_use(run, winner)) from None
        _HELD.add(owner.fence.token)
        threading.Thread(target=owner._keep_alive, name="owner", daemon=True).start()
        return owner

    def renew_fence(self) -> Fence:
        """Return a fence for new processes; those that this owner started before can no longer write."""
        self.fence.check()
        _HELD.discard(self.fence.token)
        self.fence = Fence(self.run, uuid4().hex)
        _HELD.add(self.fence.token)
        self._write()
        return self.fence

    def _keep_alive(self) -> None:
        """Show that the owner is alive until it releases the directory: a wait for resources can take minutes."""
        while not self._released.wait(RENEW_SECONDS):
            with suppress(OSError, RunTakenOverError):
                self.fence.check()
                os.utime(self.run / "owner.json")

    def release(self) -> None:
        """Give up the ownership."""
        self._released.set()
        _HELD.discard(self.fence.token)
        with suppress(RunTakenOverError, OSError):
            self.fence.check()
            (self.run / "owner.json").unlink()

    def _content(self) -> str:
        return json.dumps({"token": self.fence.token, **self._identity})

    def _write(self) -> None:
        write_atomically(self.run / "owner.json", lambda path: path.write_text(self._content()))


def _identity() -> dict[str, Any]:
    """Return what identifies this process."""
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "process": os.getpid(),
        "process_began": _beginning(os.getpid()),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
    }


def _create(path: Path, text: str) -> None:
    """Create a file with its whole content; raise `FileExistsError` if there is one."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        temporary.write_text(text)
        os.link(temporary, path)  # atomic, also over NFS
    finally:
        temporary.unlink(missing_ok=True)


def _read(run: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((run / "owner.json").read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _is_alive(run: Path, other: dict[str, Any] | None) -> bool:
    """Tell whether an owner works: on the same machine if its process does, otherwise by the time of its file."""
    if other and other.get("process_began") and other.get("machine") == _machine():
        if other.get("process") == os.getpid() and other.get("token") not in _HELD:
            return False
        return _beginning(other.get("process", -1)) == other.get("process_began")
    try:
        written = (run / "owner.json").stat().st_mtime
    except FileNotFoundError:
        return False
    return _now(run) - written < LEASE_SECONDS


def _now(run: Path) -> float:
    """Return the time on the clock of the file system."""
    probe = run / f".clock.{uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _machine() -> str:
    """Return what processes with the same process numbers have in common: machine, boot and container."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
    return " ".join(parts)


def _beginning(process: int) -> str | None:
    """Return when a process of this machine began; None if there is no such process."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    state, *others = text.rpartition(")")[2].split()
    return None if state in "ZX" else others[18]


def _in_use(run: Path, other: dict[str, Any] | None) -> str:
    who = f" by process {other['process']} on {other['host']} since {other['since']}" if other else ""
    return f"{run} is in use{who}; wait for that run, or end it"
