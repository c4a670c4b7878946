"""What a client sends, as bytes: the name of a call, its sender and attempt, and numbers.

The bytes are an archive (`fedrf.archive`): reading them runs no code that they bring, and a digest detects damage. What
arrives is checked before it is used: the size first, then the digest, the call, and the types of its arguments.
"""

from __future__ import annotations

from dataclasses import fields
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fedrf.archive import DamagedError, pack, unpack
from fedrf.protocol.compression import Difference
from fedrf.protocol.envelope import Envelope
from fedrf.protocol.message import KINDS, ArrayMessage, BadMessageError, Message
from fedrf.protocol.messages import Greeting, Metrics
from fedrf.protocol.repeats import Same
from fedrf.protocol.sizes import Sizes

# The calls of clients, and the types of their arguments.
CALLS: dict[str, tuple[type, ...]] = {
    "beat": (),
    "prepare": (float,),
    "place": (str, str, str, int),
    "note": (str,),
    "count_samples": (int,),
    "greet": (Greeting,),
    "warm_start": (int, Message),
    "exchange": (Envelope,),
    "report": (Metrics,),
    "saved": (int,),
    "upload": (str, int, int, str, np.ndarray),
    "download": (str, int),
    "finish": (),
    "beat_for": (dict,),
}
OTHER_BYTES = 1_000_000  # of a call besides its arrays
MAX_INTEGER = 2**63
MAX_TEXT = 2_000
TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "NDArray": (np.ndarray, Difference, Same),  # the others stand for an array
    "Mapping": (dict,),
    "tuple": (tuple,),
}


class Call(NamedTuple):
    """One call of a client.

    Attributes
    ----------
    name
        One of `CALLS`.
    sender
        The client.
    attempt
        How often the driver has started the client.
    arguments
        Numbers, texts, messages or an envelope.
    """

    name: str
    sender: str
    attempt: int
    arguments: tuple[Any, ...]


def largest_call(sizes: Sizes) -> int:
    """Return the most bytes that a call can have: one array of each kind, in double precision."""
    kinds = (kind for kind in KINDS.values() if issubclass(kind, ArrayMessage))
    shapes = (shape for kind in kinds if (shape := kind.shape(sizes)) is not None)
    return OTHER_BYTES + 8 * sum(prod(shape) for shape in shapes)


def pack_call(name: str, sender: str, attempt: int, *arguments: Any) -> bytes:
    """Return a call as bytes."""
    return pack((name, sender, attempt, arguments), _classes())


def unpack_call(content: object, limit: int) -> Call:
    """Return the call in some bytes; raise `BadMessageError` if they are more than `limit`, damaged or no call."""
    if not isinstance(content, bytes | memoryview):
        raise BadMessageError(f"a call must be bytes; got {type(content).__name__}")
    if len(content) > limit:
        raise BadMessageError(f"a call of {len(content)} bytes; allowed are {limit}")
    try:
        value = unpack(content, _classes())
    except DamagedError as error:
        raise BadMessageError(f"a call is damaged: {error}") from None
    if type(value) is not tuple or len(value) != 4:
        raise BadMessageError("this is not a call")
    call = Call(*value)
    if type(call.name) is not str or call.name not in CALLS:
        raise BadMessageError(f"unknown call {call.name!r:.50}; known: {', '.join(CALLS)}")
    if type(call.sender) is not str or type(call.attempt) is not int or not _is_sound((call.sender, call.attempt)):
        raise BadMessageError(f"{call.name}: sender and attempt must be a text and a number")
    _check_arguments(call)
    return call


def _classes() -> tuple[type, ...]:
    return (Envelope, Difference, Same, *KINDS.values())


def _check_arguments(call: Call) -> None:
    expected, arguments = CALLS[call.name], call.arguments
    if type(arguments) is not tuple or len(arguments) != len(expected):
        raise BadMessageError(f"{call.name} of {call.sender:.50} has {len(expected)} arguments")
    for argument, kind in zip(arguments, expected, strict=True):
        allowed = (int, float) if kind is float else (kind,)
        if isinstance(argument, bool) or not isinstance(argument, allowed) or not _is_sound(argument):
            raise BadMessageError(f"{call.name} of {call.sender:.50}: wrong argument")
        messages = argument.messages if isinstance(argument, Envelope) else ()
        if len({message.kind for message in messages}) < len(messages):
            raise BadMessageError(f"{call.name} of {call.sender:.50} has several messages of one kind")
        for part in (argument, *messages):
            if isinstance(part, Envelope | Message):
                _check_owner(call, part)


def _check_owner(call: Call, part: Envelope | Message) -> None:
    if part.sender != call.sender or part.attempt != call.attempt:
        text = f"{part.sender:.50}, attempt {part.attempt}, in a call of {call.sender:.50}, attempt {call.attempt}"
        raise BadMessageError(f"{type(part).__name__} of {text}")


def _is_sound(value: Any) -> bool:
    """Tell whether numbers and texts are within bounds and all fields of a message have their types."""
    if isinstance(value, int):
        return abs(value) < MAX_INTEGER
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    if isinstance(value, tuple):
        return all(_is_sound(item) for item in value)
    if isinstance(value, dict):
        return all(type(key) is str and _is_sound(key) and _is_sound(item) for key, item in value.items())
    if isinstance(value, Envelope):
        has_numbers = _has_types(value) and all(type(number) is int for number in value.held.values())
        return has_numbers and all(isinstance(part, Message) for part in value.messages)
    return _has_types(value) if isinstance(value, Message) else True


def _has_types(value: Envelope | Message) -> bool:
    """Compare the fields of an instance with their annotations."""

    def is_right(name: str, annotation: str) -> bool:
        content = getattr(value, name)
        return type(content) in TYPES[annotation.partition("[")[0]] and _is_sound(content)

    return all(is_right(item.name, str(item.type)) for item in fields(value))
