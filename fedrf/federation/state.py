"""The coordinator's state: what a checkpoint keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from fedrf.archive import Types, pack, unpack
from fedrf.federation.aggregate import Aggregate
from fedrf.protocol.aggregation import Array
from fedrf.protocol.async_aggregation import AsyncPart
from fedrf.protocol.class_statistics import ClassStatistics
from fedrf.protocol.ledger import Ledger
from fedrf.protocol.message import KINDS
from fedrf.protocol.published import Published
from fedrf.protocol.quantized import Quantized
from fedrf.protocol.sizes import Sizes


@dataclass
class State:
    """Everything that outlives a call.

    Attributes
    ----------
    aggregate
        The newest Σℓ of each client and the averages.
    sizes
        Sizes of messages.
    sigma
        The kernel width, once it is agreed on.
    statistics, mean_embeddings
        The statistics of each source, None if they were lost, and Σℓ of each client that was sent with them.
    class_map, ridge, source_weights
        The closed form for W and C, its λ, and the weight of each source in it, once they are known.
    informative_gamma
        The range of γ for which a warm start aligns and keeps variance, if there was one.
    rounds
        The round that each client has reached.
    source_models
        Parts of single sources, for methods that show them to the target and for majority votes.
    last_closed
        The last round and phase that ended in sync mode.
    delivered
        Async mode: the version of the model that each client received last.
    received
        Where sources skip rounds: for each source, how often a part had changed when the source received it last.
    counted
        Clients whose pooled samples have been counted.
    ending
        Async mode: whether the target has finished its rounds, so that sources skip to their last.
    seconds, round_seconds
        Time in all, and time in rounds.
    ledger
        Bytes, figures and failures.
    """

    aggregate: Aggregate
    sizes: Sizes
    sigma: float | None = None
    informative_gamma: tuple[float, float] | None = None
    statistics: dict[str, ClassStatistics | None] = field(default_factory=dict)
    mean_embeddings: dict[str, Array] = field(default_factory=dict)
    class_map: Quantized | None = None
    ridge: float | None = None
    source_weights: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    source_models: dict[str, dict[str, Array]] = field(default_factory=dict)
    last_closed: tuple[int, int] = (0, 0)
    delivered: dict[str, int] = field(default_factory=dict)
    received: dict[str, dict[str, int]] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    ending: bool = False
    seconds: float = 0.0
    round_seconds: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)

    def pack(self) -> bytes:
        """Return the state as an archive; configuration and names of the clients are not part of it."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return pack(values | {"aggregate": self.aggregate.state_dict()}, _types())

    @classmethod
    def unpack(cls, content: bytes, aggregate: Aggregate) -> State:
        """Return the state in an archive, with an aggregate that has the configuration and the names."""
        values = unpack(content, _types())
        aggregate.load_state_dict(values["aggregate"])
        return cls(**values | {"aggregate": aggregate})


def number_of_rows(content: bytes) -> int:
    """Return how many rows of figures the driver had read when a state was packed."""
    ledger: Ledger = unpack(content, _types())["ledger"]
    return ledger.first_row


def _types() -> Types:
    return (*KINDS.values(), AsyncPart, Ledger, Published, Quantized, Sizes)
