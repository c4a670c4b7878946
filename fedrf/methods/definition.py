"""Checks of the class of a method."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from fedrf.methods.base import POOLING, TRAINABLE_PARTS, Method
from fedrf.protocol.message import ArrayMessage
from fedrf.protocol.messages import MeanEmbedding


def check_definition(cls: type[Method]) -> None:
    """Raise a `ValueError` with the first mistake in the class."""
    for mistake in _mistakes(cls):
        raise ValueError(f"{cls.__name__}{mistake}")


def _mistakes(cls: type[Method]) -> Iterator[str]:
    yield from _mistakes_in_names(cls)
    parts = ", ".join(TRAINABLE_PARTS)
    if not hasattr(cls, "target_trains"):
        yield f" does not say what the target trains: set target_trains to a tuple of {parts}, or to () for nothing"
    trains = cls.target_trains
    if not isinstance(trains, tuple) or not set(trains) <= set(TRAINABLE_PARTS):
        yield f".target_trains={trains!r}: allowed: a tuple of {parts}"
    if trains and cls.target_loss is Method.target_loss:
        yield f".target_trains={trains!r} needs a target_loss to train with"
    if cls.target_steps is not None and not {"aligner", *trains} <= cls.target_steps.keys():
        yield f".target_steps needs a factor for each of {', '.join(dict.fromkeys(('aligner', *trains)))}"
    yield from _mistakes_of_messages(cls)
    if cls.shows_sources and cls.asynchronous:
        yield ".shows_sources needs asynchronous = False"
    if cls.weighs_sources and (not cls.shows_sources or cls.weigh_sources is Method.weigh_sources):
        yield ".weighs_sources needs shows_sources = True and a method weigh_sources"
    if cls.pooling not in POOLING:
        yield f".pooling={cls.pooling!r}: allowed: {', '.join(POOLING)}"


def _mistakes_in_names(cls: type[Method]) -> Iterator[str]:
    """Look for attributes that are almost those of `Method`, and for flags that are not true or false."""
    known = [name for name in (*vars(Method), *Method.__annotations__) if not name.startswith("_")]
    for attribute in vars(cls):
        similar = get_close_matches(attribute, known, n=1, cutoff=0.85)
        if similar and attribute not in known:
            yield f" has {attribute}; did you mean {similar[0]}?"
    name: object = cls.name
    if not isinstance(name, str):
        yield f".name={name!r}: allowed: a text"
    for flag, default in vars(Method).items():
        if isinstance(default, bool) and not isinstance(getattr(cls, flag), bool):
            yield f".{flag}={getattr(cls, flag)!r}: allowed: True, False"


def _mistakes_of_messages(cls: type[Method]) -> Iterator[str]:
    for attribute in ("message", "source_message"):
        kind: object = getattr(cls, attribute)
        is_message = isinstance(kind, type) and issubclass(kind, ArrayMessage) and kind.is_relayed
        if not is_message and not (kind is None and attribute == "source_message"):
            yield f".{attribute}={kind!r}: allowed: a class of messages that are relayed, as in fedrf.protocol.messages"
    if cls.message is not MeanEmbedding and cls.own_message is Method.own_message:
        yield f".message={cls.message.__name__} needs a method own_message"
