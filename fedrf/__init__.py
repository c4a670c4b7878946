"""Federated domain adaptation with random features."""

from importlib.metadata import version

__version__ = version("fedrf")
