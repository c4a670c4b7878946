"""Modules with definitions from outside of the package."""

import importlib
import sys
from itertools import count
from textwrap import dedent

import pytest

from fedrf.config.loader import load_config

IMPORT_METHOD = "from fedrf.methods.base import Method\n"
METHOD = IMPORT_METHOD + dedent("""\
    class Mine(Method):
        name = "mine"
        settings = {"train.lr": 0.5}
        target_trains = ()
    """)
NUMBERS = count()
DATASET = dedent("""\
    from fedrf.data.dataset import Dataset

    class Mine(Dataset):
        name, about, origin = "mine", "two domains", "nowhere"
        settings = {"train.rounds": 7}

        def domains(self, config):
            return ("a", "b")

        def classes(self, config):
            return ("0", "1")

        def load(self, config, domain):
            raise NotImplementedError

        def locate(self, config, domain):
            return None
    """)


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Return a writer of modules, by default in the current directory, that returns a name not used before."""
    current = tmp_path / "current"
    current.mkdir()
    monkeypatch.chdir(current)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def write(text, folder=current):
        name = f"outside_{next(NUMBERS)}"
        (folder / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return name

    return write


def error_of(*overrides):
    """Return the error of a configuration, which must be one line."""
    with pytest.raises(ValueError, match=r".") as error:
        load_config(None, list(overrides))
    assert "\n" not in str(error.value)
    return str(error.value)
