"""Variants of a comparison: methods, ablations of one method, and series of values of a key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

from fedrf.config.keys import describe_keys, value_of
from fedrf.config.loader import load_config, read_given
from fedrf.config.registry import METHODS
from fedrf.config.schema import Config

ALL_METHODS = "all"
DEFAULT: str = Config.model_fields["method"].default
# Keys that have a command line option of their own, and therefore cannot be varied.
OPTIONS = {"method": "--methods", "seed": "--seeds", "data.target": "--targets", "data.sources": "--sources"}
Settings = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """The settings that distinguish one row of the tables.

    Attributes
    ----------
    settings
        Keys and values that replace those of the recipe and the call.
    varied
        The key and its value, if the variant belongs to a series of values.
    """

    name: str
    settings: Settings
    varied: tuple[str, Any] | None = None

    @property
    def method(self) -> str:
        """The method on which the variant is based."""
        return str(self.settings["method"])

    @property
    def is_baseline(self) -> bool:
        """Whether it is a baseline with its own settings, below which no variant should fall."""
        return self.name == self.method and METHODS.find(self.method).is_baseline


def find_variants(
    given: Settings, methods: Sequence[str], ablate: bool, vary: Sequence[str]
) -> tuple[tuple[Variant, ...], list[str]]:
    """Return the variants, and notes about settings that replace a method's own."""
    if ablate and vary:
        raise ValueError("--ablate and --vary cannot be combined; use one of them")
    names = _check_methods(methods)
    if vary:
        return _series(given, names or (DEFAULT,), vary), []
    ablated = next((name for name in names if METHODS.find(name).ingredients), DEFAULT)
    variants = _ablations(given, ablated) if ablate else ()
    plain = names if ablate else names or reference_methods()
    plain = tuple(name for name in plain if name not in {variant.name for variant in variants})
    notes = [note for name in plain for note in _replaced_settings(given, name)]
    return (*variants, *(Variant(name, {"method": name}) for name in plain)), notes


def reference_methods() -> tuple[str, ...]:
    """Return the methods that are compared with if none are named."""
    return tuple(name for name in METHODS.built_in if METHODS.find(name).is_reference)


def _check_methods(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name != ALL_METHODS and ":" not in name and name not in METHODS.names():
            allowed = ", ".join(METHODS.names())
            raise ValueError(f"--methods: {name!r} is not a method; allowed: {allowed}, {ALL_METHODS}")
    return tuple(METHODS.names()) if ALL_METHODS in names else tuple(dict.fromkeys(names))


def _replaced_settings(given: Settings, method: str) -> Iterable[str]:
    """Return a note for each setting of the method that the recipe or call replaces; a complete file replaces all."""
    for key, own in METHODS.find(method).settings.items():
        section, _, name = key.partition(".")
        used = given.get(section, {}).get(name, own) if isinstance(given.get(section), Mapping) else own
        if used != own:
            yield f"{method} has {key}={used} from the recipe or call instead of its own {own}"


def _ablations(given: Settings, method: str) -> tuple[Variant, ...]:
    """Return a method, the method without each of its ingredients, and the method without all of them.

    An ingredient that another one requires is removed together with that one; the variant's name lists both.
    """
    full, ingredients = {"method": method}, METHODS.find(method).ingredients
    config = load_config(None, {**given, **full})
    off = {key: value for key, value in ingredients.items() if value_of(config, key) != value}
    variants = [Variant(method, full)]
    for key in off:
        removed = _removed_with(given, full, off, key)
        names = " and ".join(f"{name}={format_value(value_of(config, name))}" for name in removed)
        variants.append(Variant(f"without {names}", {**full, **removed}))
    return (*variants, Variant("all off", {**full, **ingredients}))


def _removed_with(given: Settings, full: Settings, off: Settings, key: str) -> Settings:
    """Return the settings that remove one ingredient, with one more ingredient where it cannot be removed alone."""
    complaints = []
    for other in (key, *(name for name in off if name != key)):
        settings = {name: off[name] for name in dict.fromkeys((key, other))}
        try:
            load_config(None, {**given, **full, **settings})
            return settings
        except ValueError as error:
            complaints.append(str(error))
    raise ValueError(f"--ablate: {key} cannot be removed from {full['method']}: {complaints[0]}")


def _series(given: Settings, methods: tuple[str, ...], vary: Sequence[str]) -> tuple[Variant, ...]:
    """Return a variant for each method and value; values that are equal after parsing are one variant."""
    variants: dict[str, Variant] = {}
    for method in methods:
        for text in vary:
            key, values = _parse_series(text)
            for value in values:
                settings = {"method": method, key: value}
                resolved = value_of(load_config(None, {**given, **settings}), key)
                name = f"{key}={format_value(resolved)}"
                name = name if len(methods) == 1 else f"{method} {name}"
                variants.setdefault(name, Variant(name, settings, (key, resolved)))
    return tuple(variants.values())


def _parse_series(text: str) -> tuple[str, Iterable[Any]]:
    """Return the key and the values of one ``--vary`` option."""
    key, equals, values = text.partition("=")
    if not equals or not values:
        raise ValueError(f"--vary takes section.key=value,value,…; got {text!r}")
    if key in OPTIONS:
        raise ValueError(f"--vary {key} is not allowed; use {OPTIONS[key]}")
    if key not in {known.name for known in describe_keys()}:
        raise ValueError(f"--vary {key}: unknown key; `fedrf run --keys` lists all keys")
    parts = re.split(r",(?![^\[{]*[\]}])", values)  # a comma in brackets belongs to the value
    return key, (reduce(getitem, key.split("."), read_given(None, [f"{key}={part}"])) for part in parts)


def format_value(value: Any) -> str:
    """Return the value of a key as short text."""
    if isinstance(value, float):
        return f"{value:g}"
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
