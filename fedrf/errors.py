"""How a run can fail for good."""


class RunFailedError(RuntimeError):
    """A run that cannot go on; the text says why."""


def reason(error: BaseException) -> str:
    """Return the first line of what an error says, or its name where it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
