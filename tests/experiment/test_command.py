"""`fedrf run` and `fedrf report`: output, errors in one line, and signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.calls import call, printed
from tests.conftest import SYNC, TINY

KEYS = [f"{key}={value}" for key, value in TINY.items()]


def test_only_json_is_on_standard_output_and_a_report_is_one_file(tmp_path, monkeypatch, capfd, drawn_curves):
    arguments = ["run", "digits", *KEYS, "--local", "--json", "--out", tmp_path / "run", "--seed", 1]
    summary = json.loads(printed(arguments, monkeypatch, capfd))
    assert summary == json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["seed"] == 1
    printed(["report", tmp_path / "run", "--out", tmp_path / "page.html"], monkeypatch, capfd)
    text = (tmp_path / "page.html").read_text()
    assert "fedrf-plus" in text
    assert text.count("<svg") == 1
    assert not re.search("<(script|link|img)|src=", text)  # it needs no other file


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["train.rounds=-1"], "train.rounds=-1: Input should be greater than or equal to 0"),
        (["data.target=mars"], "data.target='mars': the domains of digits are handwritten, rendered, textured, street"),
        (["data.sources=[venus]"], "data.sources='venus'"),
        (["nowhere.yaml"], "there is no file nowhere.yaml"),
        (["no-recipe"], "'no-recipe' is neither a recipe nor a .yaml file; recipes: digit-five, digit-four, digits"),
        (["--resume", "nowhere"], "nowhere is not a run directory"),
        (["federation.delays={nobody: 3}"], "federation.delays names nobody; the clients are rendered, textured"),
        (["--resume", "somewhere", "train.rounds=3"], "--resume uses the configuration of the run"),
        (["--seed", "-1"], "seed=-1"),
        (["method=no_such_module:Mine"], "method=no_such_module:Mine: cannot import no_such_module"),
    ],
)
def test_a_mistake_gives_one_line_and_writes_nothing(tmp_path, monkeypatch, capfd, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(["run", *arguments, "--local"], monkeypatch, capfd)
    assert code == 2
    assert complaint in err
    assert len(err.strip().splitlines()) == 1, err
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_help_and_keys_explain_themselves(monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", "200")
    assert "--resume" in printed(["run", "--help"], monkeypatch, capfd)
    keys = printed(["run", "--keys"], monkeypatch, capfd)
    assert "federation.classifier_interval" in keys
    assert "T_C" in keys


def test_sigterm_saves_as_ctrl_c_does(tmp_path):
    slow = {**SYNC, "train.rounds": 50, "federation.delays": '{"street": 0.1}'}
    keys = [f"{key}={value}" for key, value in slow.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedrf", "run", *keys, "--local", "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("run/checkpoints/coordinator/*3.safetensors")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "(interrupted)" in out
