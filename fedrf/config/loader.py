"""Build a configuration: defaults, settings of data set, recipe and method, a file, and overrides, in this order.

A recipe that comes with fedrf says how a data set is used, whatever the method. So what a method sets replaces it; a
file of the user is above both. A recipe or file can name another recipe that it adds to, as `recipe: office31`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from fedrf.config.keys import keys_of
from fedrf.config.registry import DATASETS, METHODS, REGISTRIES, Registry
from fedrf.config.schema import SECTIONS, Config

RECIPES = Path(__file__).parent / "recipes"
RECIPE = "<recipe>"  # key for the name of a recipe among given values, until the method is known
PATHS = ("data.root", "model.weights")
NAMES = ("data.target", "data.sources", "data.classes")
# Keys of earlier versions, and what took their place.
OF_THE_METHOD = "an attribute of the method, which cannot be set"
RETIRED = {
    "federation.messages": "federation.embeddings_from, federation.aligners_from and federation.classifiers_from",
    "data.pooled": OF_THE_METHOD,
    "model.normalization": OF_THE_METHOD,
    "federation.shows": OF_THE_METHOD,
    "federation.encryption": OF_THE_METHOD,
}


def recipes() -> list[str]:
    """Return the names of the recipes that come with fedrf."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_config(recipe: str | Path | None = None, overrides: Mapping[str, Any] | Iterable[str] = ()) -> Config:
    """Build a configuration from a recipe or a YAML file, and overrides.

    Parameters
    ----------
    recipe
        The name of a recipe, or a file that ends in .yaml.
    overrides
        ``{"train.rounds": 20}``, or texts such as ``train.rounds=20`` whose values are YAML.
    """
    given = read_given(recipe, overrides)
    values: dict[str, Any] = {}
    for settings, _ in _default_settings(given):
        for key, value in settings.items():
            _set(values, key, value)
    _merge(values, {key: value for key, value in given.items() if key != RECIPE})
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ValueError(_one_line(error, _origins(given))) from None


def _origins(given: dict[str, Any]) -> dict[str, str]:
    """Return the class that set a key, for keys that were not given."""
    origins = {}
    for settings, owner in _default_settings(given):
        for key in settings:
            section, _, name = key.rpartition(".")
            known = given.get(section, {}) if section else given
            if not isinstance(known, Mapping) or name not in known:
                origins[key] = owner
    return origins


def _default_settings(given: dict[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield what data set, recipe and method set differently from the defaults of the schema, with their names."""
    recipe = recipe_settings(given)
    data = given.get("data")
    dataset = data.get("name") if isinstance(data, dict) and "name" in data else recipe.get("data.name")
    if isinstance(dataset, str):
        yield _settings_of(DATASETS, dataset)
    yield recipe, f"the recipe {given.get(RECIPE)}"
    method = given.get("method", Config.model_fields["method"].default)
    if isinstance(method, str):
        yield _settings_of(METHODS, method)


def recipe_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the recipe that is named among given values, by key."""
    if RECIPE not in given:
        return {}
    if given[RECIPE] not in recipes():
        raise ValueError(f"{given[RECIPE]!r} is neither a recipe nor a .yaml file; recipes: {', '.join(recipes())}")
    content = _read(RECIPES / f"{given[RECIPE]}.yaml")
    settings = recipe_settings(content)
    for section, values in content.items():
        if section != RECIPE:
            settings |= {f"{section}.{key}": value for key, value in values.items()}
    return settings


def _settings_of(registry: Registry[Any], name: str) -> tuple[Mapping[str, Any], str]:
    """Return the settings of a data set or method, and its class; a `ValueError` names a key that is unknown."""
    definition = registry.find(name)
    settings, owner = definition.settings, getattr(definition, "owner", type(definition).__name__)
    if not isinstance(settings, Mapping):
        raise ValueError(f"{registry.key}={name}: {owner}.settings={settings!r} is not a dictionary of keys and values")
    for key in settings:
        section, _, last = str(key).rpartition(".")
        if key in SECTIONS or last not in keys_of(section):
            known = "`fedrf run --keys` lists all keys"
            raise ValueError(f"{registry.key}={name}: {owner}.settings has the unknown key {key!r}; {known}")
    return settings, f"{owner}.settings"


def read_given(recipe: str | Path | None, overrides: Mapping[str, Any] | Iterable[str] = ()) -> dict[str, Any]:
    """Return the name of a recipe, or the values of a file, and overrides by sections, without defaults."""
    given: dict[str, Any] = {} if recipe is None else {RECIPE: str(recipe)}
    if recipe is not None and Path(recipe).suffix in (".yaml", ".yml"):
        given = _read(Path(recipe))
    recipe_settings(given)  # complains about a recipe that does not exist
    for key, value in _pairs(overrides):
        _set(given, key, deepcopy(value))
    return given


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold sections and keys; got {type(content).__name__}")
    return {RECIPE if key == "recipe" else key: value for key, value in content.items()}


def _pairs(overrides: Mapping[str, Any] | Iterable[str]) -> Iterable[tuple[str, Any]]:
    if isinstance(overrides, Mapping):
        yield from overrides.items()
        return
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"an override is section.key=value; got {text!r}")
        yield key, _value(key, value)


def _value(key: str, text: str) -> Any:
    if key in PATHS:
        return text or None
    try:
        # Names of domains and classes, such as 2024, 01 or no, stay texts.
        value = yaml.load(text, yaml.BaseLoader) if key in NAMES else yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if key in REGISTRIES:
        return value if isinstance(value, str) else text  # module: is not a mapping
    return None if key in NAMES and value in ("", "null") and key != "data.target" else value


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise ValueError(f"{key}: {section} is a value, not a section")
    tree[last] = value


def _merge(tree: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        else:
            tree[key] = deepcopy(value)


def _one_line(error: ValidationError, origins: Mapping[str, str]) -> str:
    """Return every mistake once: key, value, what is allowed, and the class that set the key, if one did."""
    complaints: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for detail in error.errors():
        path = [str(part) for part in detail["loc"]]
        key = ".".join(path[:2] if path and path[0] in SECTIONS else path[:1])
        if detail["type"] == "extra_forbidden":
            text = _unknown_key(key, path)
        elif detail["type"] == "model_type":
            text = "is a section, with keys of its own"
        else:
            text = detail["msg"].removeprefix("Value error, ")
        complaints.setdefault(key, []).append(text)
        values[key] = detail["input"]
    lines = []
    for key, texts in complaints.items():
        shown = f"{key}={values[key]!r}: " if key and not isinstance(values[key], dict) else f"{key}: " if key else ""
        origin = f" (from {origins[key]})" if key in origins else ""
        lines.append(shown + " or ".join(dict.fromkeys(texts)) + origin)
    return "; ".join(lines)


def _unknown_key(key: str, path: list[str]) -> str:
    if key in RETIRED:
        return f"is no longer a key; now: {RETIRED[key]}"
    return f"unknown key; allowed: {', '.join(keys_of(path[0] if len(path) > 1 else None))}"
