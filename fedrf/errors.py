"""Errors, and their reasons in one line."""

from __future__ import annotations

# How notes begin because of which a run does not promise the same bits for the same seed.
NOT_THE_SAME_BITS = "not the same bits on a GPU"


class RunFailedError(RuntimeError):
    """A run that cannot continue; the text says why."""


def reason(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its class if it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
