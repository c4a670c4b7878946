"""Federated domain adaptation with random features."""

from typing import Any


def __getattr__(name: str) -> Any:
    # Imported on first use, so that commands start quickly.
    if name == "__version__":
        from importlib.metadata import version

        return version("fedrf")
    if name == "run":
        from fedrf.experiment.run import run

        return run
    raise AttributeError(f"module 'fedrf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", "run"]
