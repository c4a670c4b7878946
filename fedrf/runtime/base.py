"""What the driver of a run needs of a federation, in whichever processes its clients run."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Ended(NamedTuple):
    """The end of a client's run.

    Attributes
    ----------
    client
        The client's name.
    error
        The exception that ended the run; None if the client finished.
    lost
        True if the client's process died, so that the client can be started again.
    """

    client: str
    error: BaseException | None = None
    lost: bool = False


class Federation(Protocol):
    """The clients and the coordinator of one run.

    `LocalFederation`, `SimulatedFederation` and `RayFederation` implement it.
    """

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the coordinator; raise `ConnectionError` if its process died or does not answer."""

    def start(self, name: str, attempt: int, checkpoint: int | None) -> None:
        """Start a client, from the version of its checkpoint, if one is given."""

    def end(self, name: str) -> bool:
        """End the process of a client that is silent, and tell whether that is possible; `wait` returns it as lost."""

    def wait(self, seconds: float) -> list[Ended]:
        """Wait until a client's run ends, at most `seconds`; return the runs that ended."""

    def close(self) -> None:
        """Stop the coordinator and all clients."""
