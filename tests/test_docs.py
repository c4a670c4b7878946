"""Examples in the documentation run, and what it names exists."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import fedrf

ROOT = Path(__file__).parent.parent
MODULES = [m.name for m in pkgutil.walk_packages(fedrf.__path__, "fedrf.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_readme_examples_run_from_top_to_bottom():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    scope = {}
    for block in blocks:
        exec(block, scope)
    assert scope["rf"].mmd_.after < scope["rf"].mmd_.before


def test_make_targets_that_are_named_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"\bmake (\w+)", (ROOT / name).read_text()))
        assert named <= targets, name


def test_constraints_name_versions_and_no_hosts():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line) for line in lines)
