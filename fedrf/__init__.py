"""Federated domain adaptation with random features."""

from importlib.metadata import version
from typing import Any

__version__ = version("fedrf")


def __getattr__(name: str) -> Any:
    # Imported on first use: commands that only look something up start faster without.
    if name == "run":
        from fedrf.experiment.run import run

        return run
    raise AttributeError(f"module 'fedrf' has no attribute {name!r}")
