"""Definitions that a key can name, and where they come from, for `fedrf methods` and `fedrf datasets`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
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


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *texts: str) -> None:
    """Print a table whose first and last column are not wrapped, and texts below it."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in (columns[0], columns[-1]))
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table, *(f"\n{text}" for text in texts), sep="\n")


def _provider(registry: Registry[Any], name: str) -> str:
    if name in registry.built_in:
        return "built in"
    if name in registry.installed:
        distribution = registry.installed[name].dist
        return f"package {distribution.name}" if distribution else registry.installed[name].module
    return f"module {name.partition(':')[0]}"
