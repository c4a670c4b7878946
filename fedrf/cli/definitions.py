"""Definitions that a key can name, and where they come from, for `fedrf methods` and `fedrf datasets`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from fedrf.config.registry import Registry

Definition = TypeVar("Definition")


def definitions(registry: Registry[Definition], names: Sequence[str]) -> Iterator[tuple[str, Definition, str]]:
    """Yield names with their definitions and where these come from.

    Without `names`, yield all that are built in or installed, and warn about those that cannot be used.
    """
    for name in names or registry.names():
        try:
            definition = registry.find(name)
        except ValueError as error:
            if names:
                raise
            warnings.warn(f"{error} ({_provider(registry, name)})", stacklevel=2)
        else:
            yield name, definition, _provider(registry, name)


def _provider(registry: Registry[Any], name: str) -> str:
    if name in registry.built_in:
        return "built in"
    if name in registry.installed:
        distribution = registry.installed[name].dist
        return f"package {distribution.name}" if distribution else registry.installed[name].module
    return f"module {name.partition(':')[0]}"
