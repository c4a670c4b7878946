"""Who takes part in a federation, and who is present."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Roster:
    """The clients of a run.

    Attributes
    ----------
    sources, target
        Names of the clients.
    clients
        All clients, sources first.
    present
        Clients that have not left.
    finished
        Clients that have done all their rounds.
    begun
        Whether all clients have greeted.
    stopping
        Whether clients are asked to save and stop.
    """

    sources: tuple[str, ...]
    target: str
    clients: tuple[str, ...] = field(init=False)
    present: set[str] = field(init=False)
    finished: set[str] = field(default_factory=set)
    begun: bool = False
    stopping: bool = False

    def __post_init__(self) -> None:
        self.clients = (*self.sources, self.target)
        self.present = set(self.clients)

    def expected(self) -> set[str]:
        """Return the clients whose messages the others wait for."""
        return self.present - self.finished
