"""What a run was made with: versions, commit, machine, time and command."""

from __future__ import annotations

import platform
import shlex
import socket
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("fedrf", "torch", "torchvision", "lightning", "ray", "numpy")


def environment() -> dict[str, Any]:
    """Return versions, the commit of the package's source, host, date and command line."""
    return {
        "date": now(),
        "host": socket.gethostname(),
        "command": shlex.join(sys.argv),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def now() -> str:
    """Return the time as a text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the source, with a plus if files have changed; None if it is not a checkout."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        commands = (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        commit, changes = (
            subprocess.run(
                ["git", "-C", folder, *command], capture_output=True, text=True, check=True, timeout=10
            ).stdout
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.strip() + ("+" if changes else "")
