"""Calls of the command line, in this process and in a new one."""

import subprocess
import sys

import pytest

from fedrf.cli.app import main


def run_process(*arguments, **options):
    command = [sys.executable, "-m", "fedrf", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def call(arguments, monkeypatch, capsys):
    """Return exit code, standard output and standard error of a call in this process."""
    monkeypatch.setattr(sys, "argv", ["fedrf", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0, *capsys.readouterr()


def printed(arguments, monkeypatch, capsys):
    """Return the standard output of a call that succeeds."""
    code, out, err = call(arguments, monkeypatch, capsys)
    assert code == 0, err
    return out
