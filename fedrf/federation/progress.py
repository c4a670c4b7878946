"""How far a client is: what its checkpoints keep besides weights and optimisers."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from fedrf.protocol.compression import Array
NOT_KEPT = ("stopped", "saved_version")  # in checkpoints


@dataclass
class Progress:
    """The state of a client between rounds.

    Attributes
    ----------
    round
        The round, or after the last round the number of rounds and steps, that the client has begun.
    model_version
        Version of the model that it received last.
    checkpoint_version
        The newest checkpoint version that it knows of.
    committed
        Whether it has sent its parts after the last round.
    figures
        Figures that are sent with the next message.
    source_models
        At the target: parts of single sources.
    anchor
        The averages that came last, for the penalty of FedProx.
    references, held, residuals
        If parts are compressed: the averages that came last, their numbers, and what rounding has left out.
    stopped
        Whether the coordinator asked it to stop; a checkpoint does not keep it.
    saved_version
        The newest checkpoint version that it has saved or need not save; a checkpoint does not keep it.
    """

    round: int = 0
    model_version: int = 0
    checkpoint_version: int = 0
    committed: bool = False
    figures: dict[str, float] = field(default_factory=dict)
    source_models: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    anchor: dict[str, Tensor] = field(default_factory=dict)
    references: dict[str, Array] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    residuals: dict[str, Array] = field(default_factory=dict)
    stopped: bool = False
    saved_version: int = 0

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in NOT_KEPT}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        for name, value in state.items():
            setattr(self, name, value)
