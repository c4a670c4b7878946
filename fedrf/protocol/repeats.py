"""Messages that have not changed are not sent again: both sides of a connection remember the last ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from fedrf.protocol.message import ArrayMessage, BadMessageError

SAME_BYTES = 8
M = TypeVar("M", bound=ArrayMessage)


class Same(NamedTuple):
    """Stands for an array that has not changed.

    Attributes
    ----------
    since
        The round of the message with the array.
    """

    since: int

    @property
    def nbytes(self) -> int:
        """Size of the round in bytes."""
        return SAME_BYTES


class Repeats:
    """The last messages in one direction of one connection, by sender and kind.

    The sender of the messages has one to shorten them, and their receiver one to restore them. A message is the same as
    the one before if its array has the same bits and its sender has not been started again.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], ArrayMessage] = {}

    def forget(self) -> None:
        """Begin again: the next messages are sent whole."""
        self._last.clear()

    def shorten(self, message: M) -> M:
        """Return a message without its array if the receiver has it, and otherwise remember it."""
        last = self._last.get(_key(message))
        if last is None or last.attempt != message.attempt or not _is_equal(last.values, message.values):
            self._last[_key(message)] = message
            return message
        return replace(message, values=cast(Any, Same(last.round)))

    def restore(self, message: M) -> M:
        """Return a message with its array; a `BadMessageError` if it refers to one that is not there."""
        same: object = message.values
        if not isinstance(same, Same):
            self._last[_key(message)] = message
            return message
        last = self._last.get(_key(message))
        if last is None or last.attempt != message.attempt or last.round != same.since:
            raise BadMessageError(f"{message.kind} of {message.sender} repeats one that is not known")
        return replace(message, values=last.values)


def _key(message: ArrayMessage) -> tuple[str, str]:
    return message.sender, message.kind


def _is_equal(first: Any, second: Any) -> bool:
    return first is second or (first.shape == second.shape and first.tobytes() == second.tobytes())
