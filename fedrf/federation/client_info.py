"""Who a client is, and where it keeps its files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class ClientInfo(NamedTuple):
    """One client's place in a run; `attempt` counts its starts, `checkpoint` is what it goes on from."""

    name: str
    sources: tuple[str, ...]
    target: str
    run: Path
    attempt: int = 0
    checkpoint: Path | None = None
