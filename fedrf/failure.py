"""How a run can fail for good."""


class RunFailedError(RuntimeError):
    """A run that cannot go on; the text says why."""
