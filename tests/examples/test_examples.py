"""The programs in examples/, run as their docstrings say, from a folder that has nothing else in it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedrf

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMAND = Path(sys.executable).parent / "fedrf"
SHORT = ("train.rounds=40", "data.samples=300", "model.num_features=100", "adapt.steps=40", "track.evaluate_every=20")


@pytest.fixture
def folder(tmp_path):
    """A copy of the examples, outside of the repository."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__")))


def arguments_of(example):
    """The command in the docstring of an example, without the word fedrf."""
    (command,) = re.findall(r"`fedrf (run .*)`", (EXAMPLES / f"{example}.py").read_text())
    return command.split()


def run(folder, *arguments):
    return subprocess.run([COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("example", "chance"),
    [
        ("moment_matching", 0.1),
        ("rotated_moons", 0.5),
        ("low_frequencies", 0.1),
        ("clipped_mean", 0.1),
        ("margin", 0.1),
    ],
)
def test_the_settings_of_an_example_learn(folder, monkeypatch, example, chance):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the current directory is appended to it
    summary = fedrf.run(None, [*arguments_of(example)[1:], *SHORT], local=True).summary
    assert summary["target_accuracy"]["final"] > chance + 0.2
    if example == "margin":
        assert 0 < summary["scores"]["margin:margin"] <= 1
    if example == "moment_matching":
        assert summary["communication"]["bytes_by_kind"]["moments"] > 0


def test_every_example_is_tested_and_the_method_is_short():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        *("moment_matching", "rotated_moons", "low_frequencies", "clipped_mean", "margin")
    }
    assert len((EXAMPLES / "moment_matching.py").read_text().splitlines()) <= 45


@pytest.mark.ray
def test_actors_import_what_is_in_the_current_directory(folder):
    """Without any installation: method, data, rule and score are modules of the folder that the command runs in."""
    names = [word for example in ("moment_matching", "rotated_moons") for word in arguments_of(example)[1:]]
    names += [arguments_of("clipped_mean")[1], arguments_of("margin")[1]]
    few = ("train.rounds=6", "resources.clients_per_actor=3", "federation.mode=sync")
    with_ray = run(folder, "run", *names, *few, "--json")
    assert with_ray.returncode == 0, with_ray.stderr
    in_threads = run(folder, "run", *names, *few, "--json", "--local")
    summaries = [json.loads(result.stdout) for result in (with_ray, in_threads)]
    assert summaries[0]["method"] == "moment_matching:MomentMatching"
    assert summaries[0]["target_accuracy"] == summaries[1]["target_accuracy"]
    assert summaries[0]["communication"] == summaries[1]["communication"]


def test_a_mistake_is_one_line(folder):
    (folder / "forgetful.py").write_text(
        "from fedrf.methods.base import Method\n\n\nclass Forgetful(Method):\n    name = 'forgetful'\n"
    )
    result = run(folder, "run", "method=forgetful:Forgetful", "--local")
    assert result.returncode == 2
    assert result.stderr == (
        "fedrf: method=forgetful:Forgetful: Forgetful does not say what the target trains: set target_trains to a "
        "tuple of aligner, classifier, extractor, or to () for nothing\n"
    )
    result = run(folder, "run", "method=forgetful:Forgetfull", "--local")
    assert result.returncode == 2
    assert result.stderr.startswith("fedrf: method=forgetful:Forgetfull: forgetful has no 'Forgetfull' (imported from ")
    assert len(result.stderr.splitlines()) == 1
