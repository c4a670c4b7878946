"""Examples in the documentation run, and what it names exists."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedrf
from fedrf.config.loader import load_config
from fedrf.config.presets import PRESETS
from fedrf.config.schema import Config
from tune.space import load_space

ROOT = Path(__file__).parent.parent
MODULES = [m.name for m in pkgutil.walk_packages(fedrf.__path__, "fedrf.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_readme_examples_run_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    scope = {}
    for block in blocks:
        exec(block, scope)
    assert scope["rf"].mmd_.after < scope["rf"].mmd_.before
    assert scope["result"].finished


def test_the_search_space_in_the_documentation_is_one(tmp_path):
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/sweeps.md").read_text(), re.DOTALL)
    (tmp_path / "space.yaml").write_text(block)
    assert len(load_space(str(tmp_path / "space.yaml"))) == 4


def test_settings_that_the_documentation_names_are_allowed():
    table = re.findall(r"^\| .* \| `(federation\.[^`]*)` \|$", (ROOT / "docs/protocol.md").read_text(), re.MULTILINE)
    assert len(table) == 11
    for overrides in table:
        load_config(None, ["method=fedrf-tca", *overrides.split()])


def test_commands_that_the_documentation_shows_exist():
    text = "".join(
        (ROOT / name).read_text()
        for name in (
            "README.md",
            "docs/protocol.md",
            "docs/data.md",
            "docs/compare.md",
            "docs/method.md",
            "docs/methods.md",
            "docs/sweeps.md",
            "cluster/README.md",
        )
    )
    options = set(re.findall(r"fedrf run [^\n`]*?(--[a-z]+)", text))
    known = subprocess.run([sys.executable, "-m", "fedrf", "run", "--help"], capture_output=True, text=True).stdout
    assert options >= {"--resume", "--address"}
    assert all(option in known for option in options)
    comparing = set(re.findall(r" (--[a-z]+)", " ".join(re.findall(r"fedrf compare [^\n`]*", text))))
    known = subprocess.run([sys.executable, "-m", "fedrf", "compare", "--help"], capture_output=True, text=True).stdout
    assert comparing >= {"--methods", "--ablate", "--vary"}
    assert all(option in known for option in comparing)
    sweeping = set(re.findall(r"python -m tune [^\n`]*?(--[a-z-]+)", text))
    known = subprocess.run([sys.executable, "-m", "tune", "--help"], capture_output=True, text=True).stdout
    assert sweeping >= {"--resume", "--space", "--closed-form"}
    assert all(option in known for option in sweeping)
    keys = set(re.findall(r"\b((?:data|model|align|train|adapt|federation|resources|track)\.[a-z_]+)=", text))
    assert keys <= {key for key, *_ in Config.describe()}


def test_the_table_of_methods_has_all_of_them_and_tells_who_need_not_wait():
    rows = re.findall(r"^\| (`.*?) \|.*\| (yes|no|–) \|$", (ROOT / "docs/methods.md").read_text(), re.MULTILINE)
    waits = {name: answer for names, answer in rows for name in re.findall("`([^`]+)`", names)}
    assert list(waits) == list(PRESETS)
    for name, answer in waits.items():
        assert (answer == "no") == (PRESETS[name].get("federation.mode") == "sync"), name


def test_make_targets_that_are_named_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"\bmake (\w+)", (ROOT / name).read_text()))
        assert named <= targets, name


def test_constraints_name_versions_and_no_hosts():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line) for line in lines)
