"""The command line as a whole: errors, warnings, exit codes and help."""

import pytest

from fedrf.config.registry import METHODS
from tests.cli.calls import call, printed, run_process


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "No such command 'fly'"),
        (["data", "fly"], "No such command 'fly'"),
        (["data", "check"], "Missing argument 'name'"),
        (["data", "check", "moon"], "data.name=moon: allowed: digits, digit-five"),
        (
            ["data", "check", "digits", "train.rounds=3"],
            "'train.rounds' is not a key of a data check; allowed: seed, data.root",
        ),
        (["data", "check", "digits", "--data-root", "plain.npz", "fly"], "'fly' is not a key of a data check"),
        (["data", "check", "office31", "--data-root", "nowhere"], "data.root=nowhere: no such folder"),
        (["data", "list", "--data-root", "nowhere"], "--data-root nowhere: no such folder"),
        (["run", "--resume", "nowhere"], "nowhere is not a run directory: it has no config.yaml"),
        (["run", "--resume", "nowhere", "--seed", "1"], "--resume uses the configuration of the run"),
        (["report", "nowhere"], "nowhere is not a run directory: it has no config.yaml"),
        (["methods", "moon"], "method=moon: allowed: "),
        (["methods", "no_such_module:Name"], "method=no_such_module:Name: cannot import no_such_module"),
        (["datasets", "moon"], "data.name=moon: allowed: digits, digit-five"),
        (["datasets", "math:pi"], "data.name=math:pi: 3.14"),
    ],
)
def test_a_wrong_call_gets_one_line_and_exit_code_2(files, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(files)
    code, out, err = call(arguments, monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("fedrf: ")
    assert err.count("\n") == 1


def test_a_wrong_call_in_its_own_process():
    done = run_process("align", "nowhere.npz", "nowhere.npz")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "fedrf: nowhere.npz: no such file\n")


def test_a_disk_error_is_not_an_error_of_the_call(files, tmp_path, monkeypatch, capsys):
    def fail(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr("fedrf.experiment.closed_form.save_pair", fail)
    arguments = ["align", files / "few.npz", files / "plain.npz", "--out", tmp_path / "a.npz"]
    code, _, err = call(arguments, monkeypatch, capsys)
    assert code == 1
    assert err.endswith("fedrf: No space left on device\n")


def test_without_a_command_help_is_shown(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fedrf"])
    assert "align" in "".join(call([], monkeypatch, capsys)[1:])


def test_help_teaches():
    top = run_process("--help")
    assert top.returncode == 0
    for command in ("run", "compare", "report", "methods", "datasets", "data", "align", "doctor"):
        assert f" {command} " in top.stdout
    about = run_process("align", "--help").stdout
    for word in ("--gamma", "--sigma", "auto", "median", "Example"):
        assert word in about
    about = run_process("data", "check", "--help").stdout
    for word in ("--decode", "data.partition=dirichlet", "Examples", "fedrf datasets"):
        assert word in about


@pytest.mark.parametrize("command", ["run", "compare", "methods", "datasets"])
def test_help_of_commands_that_take_names_says_where_they_are_listed(command, monkeypatch, capsys):
    about = " ".join(printed([command, "--help"], monkeypatch, capsys).split())
    assert "Examples" in about
    assert "fedrf methods" in about or "fedrf datasets" in about
    assert not any(f"{option}{name}" in about for option in ("method=", "--methods ") for name in METHODS.names())


def test_version():
    from fedrf import __version__

    assert run_process("--version").stdout == f"fedrf {__version__}\n"


def test_keys_are_listed_with_the_names_of_the_registries(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "600")
    lines = printed(["run", "--keys"], monkeypatch, capsys).splitlines()
    (method,) = (line for line in lines if line.startswith("method "))
    assert " | ".join([*METHODS.names(), "package.module:Name"]) in method
