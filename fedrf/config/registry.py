"""What a configuration can refer to by name: methods, data sets, extractors, aggregation rules and scores.

A name is built in, or an entry point of an installed package (groups `fedrf.methods`, `fedrf.datasets`,
`fedrf.extractors`, `fedrf.aggregation`, `fedrf.scores`), or `package.module:Name`, imported from the Python path or the
current directory. Definitions are imported when they are first used, so that listing names imports nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedrf.errors import reason

if TYPE_CHECKING:
    from fedrf.adaptation.selection import Score
    from fedrf.data.dataset import Dataset
    from fedrf.methods.base import Method
    from fedrf.models.extractors import ExtractorDefinition
    from fedrf.protocol.aggregation import Rule

Definition = TypeVar("Definition")


@cache
def all_entry_points() -> Any:
    """Return the entry points of all installed packages, which are read once."""
    return entry_points()  # of another type since Python 3.12, but both types have `select`


class Registry(Generic[Definition]):
    """The definitions that the values of one key refer to.

    Parameters
    ----------
    key
        The configuration key.
    package
        The module with the built-in definitions. It has `BUILT_IN`, a dictionary of names to definitions or to their
        `module:Name`, and `accept`, a function that checks a definition and returns what the program uses. `accept`
        raises a `ValueError` that says what is wrong with a definition.
    group
        The entry points of installed packages that are used too.
    """

    def __init__(self, key: str, package: str, group: str) -> None:
        self.key, self.package, self.group = key, package, group
        self._found: dict[str, Definition] = {}

    @property
    def built_in(self) -> Mapping[str, object]:
        """Names that come with fedrf."""
        names: Mapping[str, object] = import_module(self.package).BUILT_IN
        return names

    @cached_property
    def installed(self) -> dict[str, EntryPoint]:
        """Entry points of other packages; built-in names cannot be replaced."""
        points = all_entry_points().select(group=self.group)
        return {point.name: point for point in points if point.name not in self.built_in}

    def names(self) -> list[str]:
        """Return all names, built-in ones first."""
        return [*self.built_in, *self.installed]

    def items(self) -> Iterator[tuple[str, Definition]]:
        """Yield all names with their definitions."""
        return ((name, self.find(name)) for name in self.names())

    def check(self, name: str) -> str:
        """Return the name if it has a definition; the `ValueError` otherwise does not repeat key and name."""
        if name not in self._found:
            definition = self._load(name)
            try:
                self._found[name] = import_module(self.package).accept(definition)
            except ValueError:
                raise
            except Exception as error:  # making an instance runs code of others, which can raise anything
                raise ValueError(f"cannot make an instance of it ({type(error).__name__}: {reason(error)})") from error
        return name

    def find(self, name: str) -> Definition:
        """Return the definition of a name; a `ValueError` says why there is none."""
        try:
            return self._found[self.check(name)]
        except ValueError as error:
            raise ValueError(f"{self.key}={name}: {error}") from error.__cause__

    def _load(self, name: str) -> Any:
        if name in self.built_in:
            definition = self.built_in[name]
            return self._import(definition) if isinstance(definition, str) else definition
        if name in self.installed or ":" in name:
            if os.getcwd() not in sys.path:  # commands are scripts, which Python starts without the current directory
                sys.path.append(os.getcwd())
            return self._import(self.installed[name].value if name in self.installed else name)
        raise ValueError(f"allowed: {', '.join(self.names())}, or package.module:Name")

    @staticmethod
    def _import(location: str) -> Any:
        module, _, attribute = location.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), attribute)) or module.endswith(".py"):
            raise ValueError("a definition from outside is package.module:Name, without folders and without .py")
        try:
            imported = import_module(module)
        except (Exception, SystemExit) as error:  # importing runs code of others, which can raise anything
            raise ValueError(f"cannot import {module} ({type(error).__name__}: {reason(error)})") from error
        if not hasattr(imported, attribute):
            origin = getattr(imported, "__file__", None) or "Python"
            raise ValueError(f"{module} has no {attribute!r} (imported from {origin})")
        return getattr(imported, attribute)


METHODS: Registry[Method] = Registry("method", "fedrf.methods", "fedrf.methods")
DATASETS: Registry[Dataset] = Registry("data.name", "fedrf.data.datasets", "fedrf.datasets")
EXTRACTORS: Registry[ExtractorDefinition] = Registry("model.extractor", "fedrf.models.extractors", "fedrf.extractors")
AGGREGATION_RULES: Registry[Rule] = Registry(
    "federation.aggregation", "fedrf.protocol.aggregation", "fedrf.aggregation"
)
SCORES: Registry[Score] = Registry("track.select", "fedrf.adaptation.selection", "fedrf.scores")
REGISTRIES: dict[str, Registry[Any]] = {
    registry.key: registry for registry in (METHODS, DATASETS, EXTRACTORS, AGGREGATION_RULES, SCORES)
}
