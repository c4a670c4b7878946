"""One call of a client to the coordinator, and its reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrf.protocol.message import Array, ArrayMessage, Message
from fedrf.protocol.quantized import Quantized

# Phases of one round, in this order. `commit`: parts, if they must be averaged before the messages of the round are
# computed; `round`: Σℓ, with parts that have not been sent yet; `final`: the parts after the last round; `statistics`:
# additive statistics; `source_models`: networks for a majority vote.
PHASES = ("commit", "round", "final", "statistics", "source_models")


@dataclass(frozen=True)
class Envelope:
    """What a client sends in one phase of one round.

    Attributes
    ----------
    attempt
        How often the sender has been started.
    model_version
        Version of the model that the sender trained from.
    held
        If parts are compressed: the number of the average of each part that the sender has.
    """

    sender: str
    round: int
    attempt: int
    phase: str
    messages: tuple[Message, ...] = ()
    model_version: int = 0
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Reply:
    """What a client receives.

    Attributes
    ----------
    embeddings
        Messages of the peers, such as Σℓ.
    parts
        Averages to load, by part; if parts are compressed, some as a `Difference`.
    numbers
        If parts are compressed: the numbers of these averages.
    source_models
        At the target: parts of single sources, by name.
    class_map
        At the target: what follows from the sources' statistics, 2N × classes.
    model_version
        Version of the model.
    checkpoint_version
        The newest checkpoint version that has begun: clients save when it grows.
    round
        The round that the federation has reached.
    stop
        Whether to save and stop.
    refused
        Reasons against messages that were not used.
    has_last
        In the answer to a greeting: whether what the client sends after the last round has arrived.
    """

    embeddings: tuple[ArrayMessage, ...] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)
    source_models: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    class_map: Quantized | None = None
    model_version: int = 0
    checkpoint_version: int = 0
    round: int = 0
    stop: bool = False
    refused: tuple[str, ...] = ()
    has_last: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)
