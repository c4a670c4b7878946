"""`fedrf methods`."""

import json
import sys
from importlib.metadata import EntryPoint

import pytest

from fedrf.config.registry import METHODS
from tests.cli.calls import call, printed, run_process

MINE = """
from fedrf.methods.base import Method

class Mine(Method):
    name = "mine"
    summary = "a method [of mine]"
    target_trains = ()
    asynchronous = False
    bytes_per_round = "4 * K * C"

class Silent(Method):
    name = "silent"
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module with a method in the current directory."""
    (tmp_path / "my_methods.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_methods", None)


def test_all_methods_are_listed_with_what_they_say_of_themselves(monkeypatch, capsys):
    rows = json.loads(printed(["methods", "--json"], monkeypatch, capsys))
    assert [row["name"] for row in rows] == METHODS.names()
    for row in rows:
        method = METHODS.find(row["name"])
        assert row["summary"] == method.summary != ""
        assert row["asynchronous"] == method.asynchronous
        assert row["bytes_per_round"] == method.bytes_per_round
        assert row["from"] == "built in"


def test_the_table_has_a_row_for_each_method_and_names_own_classes(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "250")
    out = printed(["methods"], monkeypatch, capsys)
    for name, method in METHODS.items():
        (row,) = (line for line in out.splitlines() if line.startswith(f"{name} "))
        assert method.summary in row
        assert f"  {'yes' if method.asynchronous else 'no'}  " in row
    assert "method=package.module:Name" in out


def test_a_named_method_is_shown_with_its_formula_and_the_symbols(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "250")
    out = printed(["methods", "fedavg"], monkeypatch, capsys)
    assert METHODS.find("fedavg").bytes_per_round in out
    assert "K: sources." in out
    assert "kd3a" not in out


def test_a_class_in_the_current_directory_can_be_shown(module):
    done = run_process("methods", "my_methods:Mine", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {
            "name": "my_methods:Mine",
            "summary": "a method [of mine]",
            "asynchronous": False,
            "bytes_per_round": "4 * K * C",
            "bytes_once": "0",
            "from": "module my_methods",
        }
    ]


def test_square_brackets_of_a_summary_are_printed(module, monkeypatch, capsys):
    assert "a method [of mine]" in printed(["methods", "my_methods:Mine"], monkeypatch, capsys)


def test_a_mistake_in_a_class_is_one_line(module, monkeypatch, capsys):
    code, out, err = call(["methods", "my_methods:Silent"], monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("fedrf: method=my_methods:Silent: Silent does not say what the target trains: set target_tr")
    assert err.count("\n") == 1


class Distribution:
    name = "acme"


@pytest.mark.filterwarnings("default")  # not an error, which ends the command
def test_methods_of_installed_packages_are_listed_and_broken_ones_are_warned_about(module, monkeypatch, capsys):
    points = [
        EntryPoint(name, f"my_methods:{attribute}", "fedrf.methods")._for(Distribution)
        for name, attribute in (("mine", "Mine"), ("silent", "Silent"))
    ]
    monkeypatch.setitem(METHODS.__dict__, "installed", {point.name: point for point in points})
    monkeypatch.setattr(METHODS, "_found", {})
    code, out, err = call(["methods", "--json"], monkeypatch, capsys)
    assert code == 0
    assert [row["name"] for row in json.loads(out)] == [*METHODS.built_in, "mine"]
    assert json.loads(out)[-1]["from"] == "package acme"
    assert err.startswith("fedrf: warning: method=silent: Silent does not say what the target trains")
    assert err.endswith("(package acme)\n")
    assert err.count("\n") == 1
