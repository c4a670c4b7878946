"""The coordinator's side of files that clients send because they do not see the run directory."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedrf.federation.checkpoints import ClientFiles, CoordinatorFiles, damage
from fedrf.files import write_atomically
from fedrf.protocol.message import BadMessageError

LARGEST_FILE = 2**34
PIECE_BYTES = 2**19  # of a file that crosses, in both directions


class _Hash(Protocol):
    def update(self, content: bytes) -> None: ...

    def hexdigest(self) -> str: ...


class _Upload(NamedTuple):
    """A file that has arrived in part."""

    draft: Path
    name: str
    size: int
    digest: str
    received: _Hash


class Uploads:
    """Writes files of clients to the run directory, and reads them.

    Parameters
    ----------
    files
        The coordinator's files, which know the run directory and who may write to it.
    target
        The client that also sends predictions.
    """

    def __init__(self, files: CoordinatorFiles, target: str) -> None:
        self.files, self.target = files, target
        self._open: dict[str, _Upload] = {}
        self._complete: dict[str, tuple[str, int, str]] = {}  # the last file of each client: name, size and digest
        self._lock = threading.Lock()  # a repeated call may run at the same time

    def add(self, sender: str, name: str, start: int, size: int, digest: str, piece: Any) -> None:
        """Add a piece of a file; the last one makes the file visible if the digest is right."""
        with self._lock:
            if self._complete.get(sender) != (name, size, digest):  # otherwise a repeated call
                self._add(sender, name, start, size, digest, piece)

    def _add(self, sender: str, name: str, start: int, size: int, digest: str, piece: Any) -> None:
        path = self._path(sender, name)
        if not 0 <= size <= LARGEST_FILE or piece.ndim != 1 or piece.dtype != "uint8":
            raise BadMessageError(f"{name} of {sender}: pieces of bytes are expected, {LARGEST_FILE} in all at most")
        if start == 0:
            self._begin(sender, path, name, size, digest)
        upload = self._open.get(sender)
        if upload is None or (upload.name, upload.size, upload.digest) != (name, size, digest):
            raise BadMessageError(f"{name} of {sender}: a piece of another file")
        done = upload.draft.stat().st_size
        if start + len(piece) <= done and start:
            return  # a repeated call
        if start != done or start + len(piece) > size:
            raise BadMessageError(f"{name} of {sender}: bytes from {start} on; expected from {done} on, {size} in all")
        with upload.draft.open("ab") as file:
            file.write(piece.tobytes())
        upload.received.update(piece.tobytes())
        if start + len(piece) == size:
            self._finish(sender, path, upload)

    def _begin(self, sender: str, path: Path, name: str, size: int, digest: str) -> None:
        self.files.check_owner()
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.upload")
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600)
        self._open[sender] = _Upload(draft, name, size, digest, hashlib.sha256())

    def _finish(self, sender: str, path: Path, upload: _Upload) -> None:
        del self._open[sender]
        try:
            if upload.received.hexdigest() != upload.digest:
                raise BadMessageError(f"{upload.name} of {sender} does not match its digest")
            if path.name[0].isdigit() and (reason := damage(upload.draft)):
                raise BadMessageError(reason)
            self.files.check_owner()
            write_atomically(path, lambda temporary: os.replace(upload.draft, temporary))
            self._complete[sender] = (upload.name, upload.size, upload.digest)
        finally:
            upload.draft.unlink(missing_ok=True)

    def prune(self, sender: str, oldest_needed: int) -> None:
        """Delete checkpoints of a client that has sent files, and does not see those that it no longer needs."""
        if sender in self._complete:
            ClientFiles(self.files.run, sender).prune(oldest_needed)

    def read(self, sender: str, name: str, start: int) -> tuple[int, bytes]:
        """Return the size of a file of a client, and a piece of it."""
        try:
            with self._path(sender, name).open("rb") as file:
                file.seek(max(0, start))
                return os.fstat(file.fileno()).st_size, file.read(PIECE_BYTES)
        except FileNotFoundError:
            raise BadMessageError(f"{sender} has no file {name:.50}") from None

    def _path(self, sender: str, name: str) -> Path:
        """Return the path of a file that the client may have."""
        own = ClientFiles(self.files.run, sender)
        allowed = {own.name_of_final} | ({"predictions.csv"} if sender == self.target else set())
        if name not in allowed and own.version_of(name) is None:
            raise BadMessageError(f"{name!r:.50} is no file of {sender}")
        return self.files.run / name
