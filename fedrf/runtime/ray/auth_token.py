"""Ray's token file: with its content, any user of the machine can run code in a Ray instance on it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import NamedTemporaryFile

PRIVATE = 0o600


def keep_token_private() -> None:
    """Let only its owner read Ray's token file, which Ray creates readable for all users.

    Call it before Ray starts on this machine. It creates the file if Ray would. It does not change a file that
    RAY_AUTH_TOKEN_PATH names: several users may share it.
    """
    path = Path.home() / ".ray" / "auth_token"
    with suppress(OSError):  # Ray reports a home folder that is not writable, if it needs one
        if path.exists():
            if path.stat().st_uid == os.getuid() and path.stat().st_mode & 0o077:
                path.chmod(PRIVATE)
        elif _needs_file():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with NamedTemporaryFile("w", dir=path.parent) as file:  # which only its owner can read
                file.write(token_hex(32))
                file.flush()
                os.link(file.name, path)  # fails if another process was faster, and Ray uses that token


def _needs_file() -> bool:
    """Whether a new Ray instance reads its token from the default file."""
    is_token_elsewhere = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    return not is_token_elsewhere and os.environ.get("RAY_AUTH_MODE", "token").lower() == "token"
