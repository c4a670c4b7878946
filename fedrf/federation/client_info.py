"""Which client of which run this is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class ClientInfo(NamedTuple):
    """One client of a run.

    Attributes
    ----------
    name
        The client.
    sources, target
        All clients.
    run
        The run directory.
    attempt
        How often the client has been started.
    checkpoint
        The checkpoint to continue from.
    """

    name: str
    sources: tuple[str, ...]
    target: str
    run: Path
    attempt: int = 0
    checkpoint: Path | None = None

    @property
    def position(self) -> int:
        """The position of the client among all clients."""
        return (*self.sources, self.target).index(self.name)
