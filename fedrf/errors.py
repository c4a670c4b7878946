"""Errors, and their reasons in one line."""

from __future__ import annotations


class RunFailedError(RuntimeError):
    """A run that cannot continue; the text says why."""


def reason(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its class if it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
