"""`fedrf datasets`."""

import json
import sys

import pytest

from fedrf.config.registry import DATASETS
from tests.cli.calls import call, printed, run_process

MINE = """
from fedrf.data.dataset import Dataset

class Mine(Dataset):
    name, about, origin, content = "mine", "rows of mine", "my own computer", "features"

    def domains(self, config):
        return "old", "new"

    def classes(self, config):
        return "a", "b"

    def load(self, config, domain):
        raise AssertionError("listing reads no samples")

    def locate(self, config, domain):
        return None

class Incomplete(Dataset):
    name, about, origin = "incomplete", "", ""
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module with a data set in the current directory."""
    (tmp_path / "my_data.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_data", None)


def test_all_data_sets_are_listed_with_their_domains(monkeypatch, capsys):
    monkeypatch.delenv("FEDRF_DATA", raising=False)
    rows = {row["name"]: row for row in json.loads(printed(["datasets", "--json"], monkeypatch, capsys))}
    assert list(rows) == DATASETS.names()
    for name, row in rows.items():
        dataset = DATASETS.find(name)
        assert (row["about"], row["content"], row["from"]) == (dataset.about, dataset.content, "built in")
        assert (row["domains"] is None) == dataset.user_defined
    assert rows["office31"]["domains"] == ["amazon", "dslr", "webcam"]
    assert rows["office31-surf"]["content"] == "features"


def test_the_table_explains_own_classes(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "250")
    out = printed(["datasets"], monkeypatch, capsys)
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert set(DATASETS.names()) < set(rows)
    assert "amazon, dslr, webcam" in rows["office31"]
    assert "those of your files" in rows["folder"]
    assert "data.name=package.module:Name" in out


def test_a_class_in_the_current_directory_can_be_shown(module):
    done = run_process("datasets", "my_data:Mine", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {
            "name": "my_data:Mine",
            "about": "rows of mine",
            "content": "features",
            "domains": ["old", "new"],
            "from": "module my_data",
        }
    ]


def test_a_mistake_in_a_class_is_one_line(module, monkeypatch, capsys):
    code, out, err = call(["datasets", "my_data:Incomplete"], monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err == ("fedrf: data.name=my_data:Incomplete: Incomplete does not define classes, domains, load, locate\n")
