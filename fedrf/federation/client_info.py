"""Which client of which run this is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fedrf.ownership import Fence


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
        The version of the checkpoint to continue from.
    token
        Allows writing to the run directory (`fedrf.ownership`).
    """

    name: str
    sources: tuple[str, ...]
    target: str
    run: Path
    attempt: int = 0
    checkpoint: int | None = None
    token: str = ""

    @property
    def fence(self) -> Fence:
        """Checked before writing to the run directory."""
        return Fence(self.run, self.token)

    @property
    def position(self) -> int:
        """The position of the client among all clients."""
        return (*self.sources, self.target).index(self.name)
