"""Definitions that installed packages offer as entry points."""

import importlib
import sys

import pytest

from fedrf.config.loader import load_config
from fedrf.config.registry import DATASETS, METHODS, REGISTRIES, all_entry_points
from tests.config.conftest import DATASET, IMPORT_METHOD, METHOD, error_of


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a distribution with entry points: ``{group: {name: module:Name}}``."""
    site = tmp_path / "site"
    site.mkdir()
    for registry in REGISTRIES.values():
        monkeypatch.delitem(registry.__dict__, "installed", raising=False)
        monkeypatch.setattr(registry, "_found", {})
    monkeypatch.syspath_prepend(str(site))

    def write(groups):
        metadata = site / "plugin-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
        lines = [
            f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in points.items()) for group, points in groups.items()
        ]
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        importlib.invalidate_caches()
        all_entry_points.cache_clear()

    yield write
    all_entry_points.cache_clear()
    for registry in REGISTRIES.values():
        registry.__dict__.pop("installed", None)


def test_entry_points_of_installed_packages_are_names(write_module, install):
    method, dataset = write_module(METHOD), write_module(DATASET)
    rule = write_module("def first(clients, weights):\n    return clients[0]\n")
    install(
        {
            "fedrf.methods": {"mine": f"{method}:Mine"},
            "fedrf.datasets": {"my-data": f"{dataset}:Mine"},
            "fedrf.aggregation": {"first": f"{rule}:first"},
        }
    )
    assert METHODS.names() == [*METHODS.built_in, "mine"]
    assert DATASETS.names() == [*DATASETS.built_in, "my-data"]
    assert method not in sys.modules, "names are listed without an import"
    keys = ["method=mine", "data.name=my-data", "data.target=a", "federation.aggregation=first"]
    config = load_config(None, keys)
    assert (config.method, config.train.lr, config.train.rounds) == ("mine", 0.5, 7)
    assert type(METHODS.find("mine")).__module__ == method
    assert "fedrf-oneshot, fedrf-plus" in error_of("method=mime")
    assert error_of("method=mime").endswith("target-oracle, mine, or package.module:Name")


def test_built_in_names_cannot_be_replaced(write_module, install):
    method, dataset = write_module(METHOD), write_module(DATASET)
    install({"fedrf.methods": {"fedavg": f"{method}:Mine"}, "fedrf.datasets": {"digits": f"{dataset}:Mine"}})
    assert METHODS.names() == list(METHODS.built_in)
    assert type(METHODS.find("fedavg")).__module__ == "fedrf.methods.fedavg"
    assert type(DATASETS.find("digits")).__module__ == "fedrf.data.datasets.digits"


def test_a_mistake_in_an_entry_point_names_key_and_reason(write_module, install):
    module = write_module(f"{IMPORT_METHOD}class Mine(Method):\n    name = 'mine'\n")
    install({"fedrf.methods": {"mine": f"{module}:Mine", "gone": f"{module}:Gone", "lost": "no_such_module:Mine"}})
    assert error_of("method=mine").startswith("method=mine: Mine does not say what the target trains")
    assert error_of("method=gone").startswith(f"method=gone: {module} has no 'Gone' (imported from ")
    assert error_of("method=lost").startswith("method=lost: cannot import no_such_module (ModuleNotFoundError: ")
