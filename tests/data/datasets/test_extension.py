"""Data sets from other packages, named as `module:Name`."""

import itertools

import numpy as np
import pytest

from fedrf.config.loader import load_config
from fedrf.data.domains import clients_of, load_domain, load_samples, locate_all, num_classes, resolve_data

RINGS = """
import numpy as np

from fedrf.data.content import Arrays
from fedrf.data.dataset import Dataset
from fedrf.data.samples import Samples


class Rings(Dataset):
    name = "rings"
    about = "two rings, shifted in each domain"
    origin = "this test"
    content = "features"
    settings = {"model.extractor": "identity", "model.dim": 5}

    def domains(self, config):
        return ("left", "middle", "right")

    def classes(self, config):
        return ("inner", "outer")

    def locate(self, config, domain):
        return None

    def load(self, config, domain):
        labels = np.arange(40) % 2
        angles = np.linspace(0, 6, 40)
        shift = self.domains(config).index(domain)
        rows = (1 + labels)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1) + shift
        return Samples.all_of(Arrays(rows.astype(np.float32)), labels)
"""
NUMBERS = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that writes a module of its own name to the Python path."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text):
        name = f"rings_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def error_of(name):
    with pytest.raises(ValueError, match=r"data\.name") as caught:
        load_config(None, [f"data.name={name}", "data.target=right"])
    message = str(caught.value)
    assert "\n" not in message
    assert name in message
    return message


@pytest.mark.parametrize("form", [list, dict])
def test_a_data_set_of_another_module_is_configured_resolved_and_loaded(module, form):
    name = f"{module(RINGS)}:Rings"
    keys = {"data.name": name, "data.target": "right", "data.scale": "standard"}
    overrides = keys if form is dict else [f"{key}={value}" for key, value in keys.items()]
    config = load_config(None, overrides)
    assert config.data.name == name
    assert (config.model.extractor, config.model.dim) == ("identity", 5), "settings of the data set are defaults"
    config = config.model_copy(update={"data": resolve_data(config.data)})
    locate_all(config.data)
    assert config.data.sources == ("left", "middle")
    assert clients_of(config) == (("left", "middle"), "right")
    assert num_classes(config.data) == 2
    assert load_domain(config.data, "middle").array()[0].tolist() == [2, 1]
    samples = load_samples(config, "left")
    assert samples.labels[np.argsort(samples.rows)].tolist() == [0, 1] * 20
    np.testing.assert_allclose(samples.array().std(axis=0), 1, atol=1e-5)


def test_its_sources_can_be_split_and_limited(module):
    keys = [f"data.name={module(RINGS)}:Rings", "data.target=right", "data.samples=20"]
    config = load_config(None, [*keys, "data.partition=even", "data.clients=2"])
    sources, target = clients_of(config)
    assert sources == ("left:1", "left:2", "middle:1", "middle:2")
    assert [len(load_samples(config, client)) for client in (*sources, target)] == [10, 10, 10, 10, 20]


def test_given_keys_are_preferred_to_its_settings(module):
    config = load_config(None, [f"data.name={module(RINGS)}:Rings", "data.target=right", "model.dim=3"])
    assert config.model.dim == 3


def test_an_error_lists_its_domains(module):
    config = load_config(None, [f"data.name={module(RINGS)}:Rings", "data.target=up"])
    with pytest.raises(ValueError, match=r"data\.target='up': the domains of \S+:Rings are left, middle, right"):
        resolve_data(config.data)


@pytest.mark.parametrize("method", ["domains", "classes", "locate", "load"])
def test_an_error_names_a_missing_method(module, method):
    text = RINGS.replace(f"def {method}(", f"def other_{method}(")
    assert f"Rings does not define {method}" in error_of(f"{module(text)}:Rings")


def test_an_error_names_all_missing_methods(module):
    text = RINGS.replace("def load(", "def read(").replace("def locate(", "def find(")
    assert "Rings does not define load, locate" in error_of(f"{module(text)}:Rings")


@pytest.mark.parametrize("attribute", ["name", "about", "origin"])
def test_an_error_names_a_missing_attribute(module, attribute):
    text = RINGS.replace(f"    {attribute} = ", f"    other_{attribute} = ")
    assert f"Rings does not set {attribute}" in error_of(f"{module(text)}:Rings")


def test_an_error_names_the_allowed_kinds_of_content(module):
    text = RINGS.replace('content = "features"', 'content = "sounds"')
    assert "Rings.content='sounds': allowed: images, features" in error_of(f"{module(text)}:Rings")


@pytest.mark.parametrize("attribute", ["np", "NUMBER", "Table"])
def test_anything_but_a_subclass_of_dataset_is_rejected(module, attribute):
    name = module(RINGS + "\n\nNUMBER = 3\n\n\nclass Table:\n    name = 'table'\n")
    assert "is not a subclass of fedrf.data.dataset.Dataset" in error_of(f"{name}:{attribute}")


def test_an_error_names_a_missing_class_or_module(module):
    name = module(RINGS)
    assert f"{name} has no 'Squares'" in error_of(f"{name}:Squares")
    assert "cannot import rings_that_do_not_exist" in error_of("rings_that_do_not_exist:Rings")


def test_an_error_in_the_module_is_one_line(module):
    name = module("raise RuntimeError('first line\\nsecond line')")
    message = error_of(f"{name}:Rings")
    assert f"cannot import {name}" in message
    assert "first line" in message


def test_a_constructor_with_arguments_is_an_error(module):
    text = RINGS.replace("    def domains(", "    def __init__(self, radius):\n        pass\n\n    def domains(")
    assert "radius" in error_of(f"{module(text)}:Rings")
