"""All keys by name: their values in a configuration, their defaults, allowed values and meanings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic_core import PydanticUndefined

from fedrf.config.registry import REGISTRIES
from fedrf.config.schema import SECTIONS, Config, Section


class Key(NamedTuple):
    """One key, as `fedrf run --keys` shows it."""

    name: str
    default: str
    allowed: str
    meaning: str


def describe_keys() -> Iterator[Key]:
    """Yield every key with its default, its allowed values and its meaning."""
    sections: dict[str, type[Section]] = {"": Config, **SECTIONS}
    for section, owner in sections.items():
        for name, field in owner.model_fields.items():
            if field.default is not PydanticUndefined:
                key = f"{section}.{name}" if section else name
                yield Key(key, str(field.default), _allowed_values(key, field.annotation), field.description or "")


def value_of(config: Config, key: str) -> Any:
    """Return the value of one key."""
    section, _, name = key.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)


def keys_of(section: str | None) -> list[str]:
    """Return the keys of a section, or of the top level."""
    owner = SECTIONS.get(section) if section else Config
    return list(owner.model_fields) if owner else []


def _allowed_values(key: str, annotation: Any) -> str:
    if key in REGISTRIES:
        return " | ".join([*REGISTRIES[key].names(), "package.module:Name"])
    return _type_name(annotation)


def _type_name(annotation: Any) -> str:
    """Return a readable type: the words of a Literal, or the name of the type."""
    options = get_args(annotation)
    if get_origin(annotation) is Literal:
        return " | ".join(options)
    if get_origin(annotation) is Annotated:
        return _type_name(options[0])
    if options and get_origin(annotation) not in (tuple, dict):
        return " | ".join(_type_name(option) for option in options if option is not type(None))
    if get_origin(annotation) is dict:
        return " → ".join(_type_name(option) for option in options)
    return "list of names" if options else str(getattr(annotation, "__name__", annotation))
