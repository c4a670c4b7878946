"""The command line as people call it, in its own process."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from fedrf import cli, estimators
from fedrf.cli.app import main
from fedrf.estimators import ESTIMATORS
from fedrf.experiment.closed_form import SCALINGS
from fedrf.tca.random_features import KERNELS
from tests.conftest import shifted_digits


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def fedrf(*arguments, env=None):
    return subprocess.run(
        [sys.executable, "-m", "fedrf", *map(str, arguments)], capture_output=True, text=True, env=env, timeout=120
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    for name, domain in shifted_digits().items():
        np.savez(folder / f"{name}.npz", X=domain.features, y=domain.labels)
        np.savez(folder / f"small-{name}.npz", X=domain.features[::5], y=domain.labels[::5])
    np.savez(folder / "unlabelled.npz", X=shifted_digits()["left"].features)
    np.savez(folder / "narrow.npz", X=np.ones((5, 3)))
    np.savez(folder / "few.npz", X=shifted_digits()["left"].features[:5])
    (folder / "folder.npz").mkdir()
    return folder


@pytest.mark.parametrize("method", ["rf-tca", "r-tca", "tca"])
def test_align_reports_accuracies_before_and_after(files, method):
    done = fedrf(
        "align", files / "plain.npz", files / "left.npz", "--method", method, "--scale", "none", "--dim", 20, "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["method"] == method
    assert summary["source"]["samples"] == summary["target"]["samples"] == 599
    assert summary["mmd"]["after"] < summary["mmd"]["before"]
    assert set(summary["target_accuracy"]) == {"1-NN", "SVM", "logistic", "FCNN"}
    svm = summary["target_accuracy"]["SVM"]
    assert svm["after"] > svm["before"]


def test_all_methods_beside_each_other(files, monkeypatch, capsys):
    """Options go to those that have them: CORAL has no --dim, and only RF-TCA random features."""
    options = ["--scale", "none", "--dim", 12, "--num-features", 60, "--seed", 1]
    call = ["align", files / "small-plain.npz", files / "small-left.npz", *options]
    every = [*call, "--method", "all", "--kernel", "linear", "--json"]  # a kernel that only JDA has
    found = {one["method"]: one for one in json.loads(printed(every, monkeypatch, capsys))}
    assert list(found) == list(ESTIMATORS)
    alone = json.loads(printed([*call, "--method", "rf-tca", "--json"], monkeypatch, capsys))
    for key in ("dim", "sigma", "gamma", "mmd", "target_accuracy"):
        assert found["rf-tca"][key] == alone[key]
    assert {one["dim"] for name, one in found.items() if name not in ("coral", "gfk")} == {12}
    cli._print_methods(list(found.values()))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["no", *ESTIMATORS]
    for line in lines[2:]:
        one = found[line.split()[0]]
        assert line.split()[1:6] == [
            *(f"{100 * score['after']:.1f}" for score in one["target_accuracy"].values()),
            str(one["dim"]),
        ]


def test_a_method_that_cannot_is_left_out_of_the_table(files, monkeypatch, capsys):
    monkeypatch.setattr(estimators, "ESTIMATORS", {name: ESTIMATORS[name] for name in ("gfk", "coral")})
    call = ["fedrf", "align", files / "small-plain.npz", files / "small-left.npz", "--method", "all", "--dim", 65]
    monkeypatch.setattr(sys, "argv", list(map(str, call)))
    with pytest.raises(SystemExit) as stopped:
        main()
    out, err = capsys.readouterr()
    assert not stopped.value.code
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["no", "coral"]
    assert "gfk is left out: dim must be at most" in err


def printed(arguments, monkeypatch, capsys):
    """Standard output of a call in this process."""
    monkeypatch.setattr(sys, "argv", ["fedrf", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    out, err = capsys.readouterr()
    assert not stopped.value.code, err
    return out


@pytest.mark.parametrize(
    ("method", "options", "found", "width"),
    [
        ("jda", ["--dim", 15], {"gamma"}, 15),
        ("jda", ["--kernel", "gaussian", "--sigma", 2, "--gamma", 0.1], {"sigma", "gamma"}, 20),
        ("coral", [], set(), 64),
        ("gfk", ["--dim", 15], set(), 30),
        ("sa", ["--dim", 15], set(), 15),
        ("dann", ["--dim", 30, "--seed", 1, "--sigma", "median"], set(), 30),
    ],
)
def test_align_tells_what_the_method_has(method, options, found, width, files, monkeypatch, capsys):
    call = ["align", files / "plain.npz", files / "left.npz", "--method", method, "--scale", "none", *options]
    summary = json.loads(printed([*call, "--json"], monkeypatch, capsys))
    assert summary.keys() & {"sigma", "gamma", "mmd"} == found
    assert summary["dim"] == width
    svm = summary["target_accuracy"]["SVM"]
    assert svm["after"] > svm["before"]


def test_align_prints_no_signs_for_what_is_not_there(files, monkeypatch, capsys):
    call = ["align", files / "plain.npz", files / "unlabelled.npz", "--method"]
    coral = printed([*call, "coral"], monkeypatch, capsys)
    assert "coral: 64 columns to 64 components in" in coral
    assert not any(word in coral for word in ("σ", "γ", "MMD", "before"))
    jda = printed([*call, "jda"], monkeypatch, capsys)
    assert "(γ = " in jda


def test_align_writes_what_it_aligned(files, tmp_path):
    out = tmp_path / "aligned.npz"
    done = fedrf("align", files / "plain.npz", files / "left.npz", "--dim", 7, "--num-features", 50, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "accuracy on the target" in done.stdout
    with np.load(out) as arrays:
        assert arrays["source"].shape == arrays["target"].shape == (599, 7)
        assert arrays["aligner"].shape == (100, 7)
        assert arrays["eigenvalues"].shape == (7,)
        assert arrays["source_labels"].shape == arrays["target_labels"].shape == (599,)
    assert [path.name for path in tmp_path.iterdir()] == ["aligned.npz"]


def test_align_without_labels_still_aligns(files):
    done = fedrf("align", files / "plain.npz", files / "unlabelled.npz", "--num-features", 50, "--dim", 5)
    assert done.returncode == 0, done.stderr
    assert "both files need labels" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["align"], "Missing argument 'source'"),
        (["align", "plain.npz", "nowhere.npz"], "nowhere.npz: no such file"),
        (["align", "plain.npz", "narrow.npz"], "source has 64 columns and target 3"),
        (["align", "plain.npz", "left.npz", "--gamma", "-1"], "gamma must be a number, at least 0, or 'auto'; got -1"),
        (["align", "plain.npz", "left.npz", "--gamma", "big"], "--gamma must be a number or 'auto'; got 'big'"),
        (["align", "plain.npz", "left.npz", "--sigma", "0"], "sigma must be a positive number"),
        (["align", "plain.npz", "left.npz", "--dim", "5000"], "dim must be at most 2 × num_features = 2000; got 5000"),
        (["align", "plain.npz", "left.npz", "--kernel", "rbf"], "'rbf' is not one of 'gaussian', 'laplace', 'cauchy'"),
        (
            ["align", "plain.npz", "left.npz", "--kernel", "linear"],
            "kernel must be one of gaussian, laplace, cauchy; got 'linear'",
        ),
        (
            ["align", "plain.npz", "left.npz", "--method", "jda", "--sigma", "2"],
            "--sigma is the width of a kernel, and the linear one has none",
        ),
        (
            ["align", "plain.npz", "left.npz", "--method", "tca", "--num-features", "10"],
            "--num-features is no option of tca; of these it takes --dim, --sigma, --gamma, --kernel",
        ),
        (
            ["align", "plain.npz", "left.npz", "--method", "dann", "--gamma", "1"],
            "--gamma is no option of dann; of these it takes --dim, --sigma, --seed",
        ),
        (
            ["align", "plain.npz", "left.npz", "--method", "coral", "--dim", "10"],
            "--dim is no option of coral; it takes none of --dim, --num-features, --sigma, --gamma, --kernel, --seed",
        ),
        (
            ["align", "plain.npz", "left.npz", "--method", "all", "--out", "a.npz"],
            "--out takes the result of one method",
        ),
        (
            ["align", "plain.npz", "unlabelled.npz", "--method", "all"],
            "--method all compares accuracies: both files need labels for that",
        ),
        (
            ["align", "unlabelled.npz", "left.npz", "--method", "jda"],
            "JDA learns from labels of the source, and the source has none",
        ),
        (
            ["align", "plain.npz", "left.npz", "--method", "gfk", "--dim", "65"],
            "the number of directions in which the source rows vary; got 65",
        ),
        (["align", "plain.npz", "left.npz", "--method", "pca"], "'pca' is not one of 'rf-tca', 'r-tca', 'tca'"),
        (["align", "plain.npz", "left.npz", "--out", "a.txt"], "--out must be an .npz file in a folder that exists"),
        (["align", "plain.npz", "left.npz", "--seed", "-1"], "seed must be an integer from 0"),
        (["align", "plain.npz", "left.npz", "--out", "plain.npz"], "--out would overwrite an input"),
        (["align", "plain.npz", "left.npz", "--out", "folder.npz"], "--out must be an .npz file in a folder"),
        (["fly"], "No such command 'fly'"),
        (["data", "fly"], "No such command 'fly'"),
        (["data", "check"], "Missing argument 'name'"),
        (["data", "check", "moon"], "data.name='moon': Input should be 'digits', 'digit-five'"),
        (
            ["data", "check", "digits", "train.rounds=3"],
            "'train.rounds' is no key of a check; allowed: seed, data.root",
        ),
        (["data", "check", "digits", "--data-root", "plain.npz", "fly"], "'fly' is no key of a check"),
        (["data", "check", "office31", "--data-root", "nowhere"], "data.root=nowhere: no such folder"),
        (["data", "list", "--data-root", "nowhere"], "--data-root nowhere: no such folder"),
    ],
)
def test_slips_get_one_line_and_exit_code_2(files, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(files)
    monkeypatch.setattr(sys, "argv", ["fedrf", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.startswith("fedrf: ")
    assert err.count("\n") == 1
    assert out == ""


def test_a_slip_in_its_own_process():
    done = fedrf("align", "nowhere.npz", "nowhere.npz")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "fedrf: nowhere.npz: no such file\n")


def test_warnings_are_one_line_each(files, tmp_path):
    out = tmp_path / "run[v1].npz"
    done = fedrf("align", files / "few.npz", files / "few.npz", "--dim", 9, "--gamma", "inf", "--out", out)
    assert done.returncode == 0
    assert done.stderr == "fedrf: warning: only 4 of the 9 components carry any variance; the others are zero\n"
    assert "run[v1].npz" in done.stdout.replace("\n", "")
    assert out.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def test_json_is_json_for_infinite_gamma(files, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["fedrf", "align", str(files / "few.npz"), str(files / "plain.npz"), "--gamma", "inf", "--json"]
    )
    with pytest.raises(SystemExit):
        main()
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["gamma"] == "inf"


def test_a_disk_that_fails_is_no_slip(files, tmp_path, monkeypatch, capsys):
    def fail(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr("fedrf.experiment.closed_form.save_pair", fail)
    pair = [str(files / "few.npz"), str(files / "plain.npz")]
    monkeypatch.setattr(sys, "argv", ["fedrf", "align", *pair, "--out", str(tmp_path / "a.npz")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert capsys.readouterr().err.endswith("fedrf: No space left on device\n")


def test_without_a_command_help_is_shown(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fedrf"])
    with pytest.raises(SystemExit):
        main()
    assert "align" in "".join(capsys.readouterr())


def test_data_check_prints_one_json_object(files):
    split = ("data.sources=[plain, left]", "data.target=unlabelled", "data.partition=shards", "data.clients=5")
    done = fedrf("data", "check", "features", *split, "--data-root", files, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert [domain["samples"] for domain in report["domains"]] == [599, 599, 599]
    assert [client["name"] for client in report["clients"]][-2:] == ["left:5", "unlabelled"]
    assert sum(client["samples"] for client in report["clients"][:5]) == 599


def test_data_check_fails_where_something_is_missing(tmp_path):
    (tmp_path / "office31/amazon").mkdir(parents=True)
    done = fedrf("data", "check", "office31", "--data-root", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    amazon, dslr = (line for line in done.stdout.splitlines() if line.startswith(("amazon", "dslr")))
    assert "wrong" in amazon
    assert "missing" in dslr


def test_data_list_tells_what_is_there(tmp_path):
    (tmp_path / "Office-31/amazon").mkdir(parents=True)
    done = fedrf("data", "list", "--data-root", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert listed["root"] == str(tmp_path)
    office = next(one for one in listed["datasets"] if one["name"] == "office31")
    assert office["found"] == {"amazon": str(tmp_path / "Office-31/amazon")}
    assert f"looked for {tmp_path}/Office-31/dslr" in office["missing"]["dslr"]
    assert "office-caltech10-decaf6" in fedrf("data", "list", "--data-root", tmp_path).stdout


def test_help_teaches():
    top = fedrf("--help")
    assert top.returncode == 0
    for command in ("align", "compare", "doctor", "data"):
        assert command in top.stdout
    about = fedrf("align", "--help").stdout
    for word in ("--gamma", "--sigma", "auto", "median", "Example"):
        assert word in about
    about = fedrf("data", "check", "--help").stdout
    for word in ("--decode", "data.partition=dirichlet", "Examples", "fedrf data list"):
        assert word in about


def test_choices_are_those_of_the_registries():
    assert list(cli.Method) == [*ESTIMATORS, "all"]
    assert list(cli.KernelName) == [*KERNELS, "linear"]
    assert list(cli.Scaling) == list(SCALINGS)


def test_version():
    from fedrf import __version__

    assert fedrf("--version").stdout == f"fedrf {__version__}\n"
