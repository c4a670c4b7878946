"""`fedrf align`."""

import json
import os

import numpy as np
import pytest

from fedrf import estimators
from fedrf.cli.align import EstimatorName, KernelName, ScalingName
from fedrf.cli.alignment import print_comparison
from fedrf.estimators import ESTIMATORS
from fedrf.experiment.closed_form import SCALINGS
from fedrf.tca.random_features import KERNELS
from tests.cli.calls import call, printed, run_process


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("method", ["rf-tca", "r-tca", "tca"])
def test_align_reports_accuracies_before_and_after(files, method, monkeypatch, capsys):
    pair = ["align", files / "plain.npz", files / "left.npz", "--scale", "none", "--dim", 20]
    summary = json.loads(printed([*pair, "--method", method, "--json"], monkeypatch, capsys))
    assert summary["method"] == method
    assert summary["source"]["samples"] == summary["target"]["samples"] == 599
    assert summary["mmd"]["after"] < summary["mmd"]["before"]
    assert set(summary["target_accuracy"]) == {"1-NN", "SVM", "logistic", "FCNN"}
    svm = summary["target_accuracy"]["SVM"]
    assert svm["after"] > svm["before"]


def test_all_methods_in_one_table(files, monkeypatch, capsys):
    """Each method gets the options that it has: CORAL has no --dim, and only RF-TCA has random features."""
    options = ["--scale", "none", "--dim", 12, "--num-features", 60, "--seed", 1]
    pair = ["align", files / "small-plain.npz", files / "small-left.npz", *options]
    every = [*pair, "--method", "all", "--kernel", "linear", "--json"]  # a kernel that only JDA has
    summaries = {summary["method"]: summary for summary in json.loads(printed(every, monkeypatch, capsys))}
    assert list(summaries) == list(ESTIMATORS)
    alone = json.loads(printed([*pair, "--method", "rf-tca", "--json"], monkeypatch, capsys))
    for key in ("dim", "sigma", "gamma", "mmd", "target_accuracy"):
        assert summaries["rf-tca"][key] == alone[key]
    assert {summary["dim"] for name, summary in summaries.items() if name not in ("coral", "gfk")} == {12}
    print_comparison(list(summaries.values()), json_output=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["no", *ESTIMATORS]
    for line in lines[2:]:
        summary = summaries[line.split()[0]]
        assert line.split()[1:6] == [
            *(f"{100 * score['after']:.1f}" for score in summary["target_accuracy"].values()),
            str(summary["dim"]),
        ]


def test_sigma_is_allowed_for_all_methods_though_jda_is_linear(files, monkeypatch, capsys):
    monkeypatch.setattr(estimators, "ESTIMATORS", {name: ESTIMATORS[name] for name in ("jda", "tca")})
    pair = ["align", files / "small-plain.npz", files / "small-left.npz", "--dim", 5]
    summaries = json.loads(printed([*pair, "--method", "all", "--sigma", 2, "--json"], monkeypatch, capsys))
    assert [summary.get("sigma") for summary in summaries] == [None, 2]


def test_a_method_that_cannot_align_the_pair_is_left_out_of_the_table(files, monkeypatch, capsys):
    monkeypatch.setattr(estimators, "ESTIMATORS", {name: ESTIMATORS[name] for name in ("gfk", "coral")})
    arguments = ["align", files / "small-plain.npz", files / "small-left.npz", "--method", "all", "--dim", 65]
    code, out, err = call(arguments, monkeypatch, capsys)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["no", "coral"]
    assert "gfk is left out: dim must be at most" in err


@pytest.mark.parametrize(
    ("method", "options", "values", "width"),
    [
        ("jda", ["--dim", 15], {"gamma"}, 15),
        ("jda", ["--kernel", "gaussian", "--sigma", 2, "--gamma", 0.1], {"sigma", "gamma"}, 20),
        ("coral", [], set(), 64),
        ("gfk", ["--dim", 15], set(), 30),
        ("sa", ["--dim", 15], set(), 15),
        ("dann", ["--dim", 30, "--seed", 1, "--sigma", "median"], set(), 30),
    ],
)
def test_align_reports_the_values_that_the_method_has(method, options, values, width, files, monkeypatch, capsys):
    call = ["align", files / "plain.npz", files / "left.npz", "--method", method, "--scale", "none", *options]
    summary = json.loads(printed([*call, "--json"], monkeypatch, capsys))
    assert summary.keys() & {"sigma", "gamma", "mmd"} == values
    assert summary["dim"] == width
    svm = summary["target_accuracy"]["SVM"]
    assert svm["after"] > svm["before"]


def test_align_prints_no_symbols_of_values_that_the_method_lacks(files, monkeypatch, capsys):
    call = ["align", files / "plain.npz", files / "unlabelled.npz", "--method"]
    coral = printed([*call, "coral"], monkeypatch, capsys)
    assert "coral: 64 columns to 64 components in" in coral
    assert not any(word in coral for word in ("σ", "γ", "MMD", "before"))
    jda = printed([*call, "jda"], monkeypatch, capsys)
    assert "(γ = " in jda


def test_align_writes_aligned_features(files, tmp_path, monkeypatch, capsys):
    out = tmp_path / "aligned.npz"
    pair = ["align", files / "plain.npz", files / "left.npz", "--dim", 7, "--num-features", 50]
    assert "accuracy on the target" in printed([*pair, "--out", out], monkeypatch, capsys)
    with np.load(out) as arrays:
        assert arrays["source"].shape == arrays["target"].shape == (599, 7)
        assert arrays["aligner"].shape == (100, 7)
        assert arrays["eigenvalues"].shape == (7,)
        assert arrays["source_labels"].shape == arrays["target_labels"].shape == (599,)
    assert [path.name for path in tmp_path.iterdir()] == ["aligned.npz"]


def test_align_without_labels_still_aligns(files, monkeypatch, capsys):
    pair = ["align", files / "plain.npz", files / "unlabelled.npz", "--num-features", 50, "--dim", 5]
    assert "both files need labels" in printed(pair, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'source'"),
        (["plain.npz", "nowhere.npz"], "nowhere.npz: no such file"),
        (["plain.npz", "narrow.npz"], "source has 64 columns and target 3"),
        (["plain.npz", "left.npz", "--gamma", "-1"], "gamma must be a number, at least 0, or 'auto'; got -1"),
        (["plain.npz", "left.npz", "--gamma", "big"], "--gamma must be a number or 'auto'; got 'big'"),
        (["plain.npz", "left.npz", "--sigma", "0"], "sigma must be a positive number"),
        (["plain.npz", "left.npz", "--dim", "5000"], "dim must be at most 2 × num_features = 2000; got 5000"),
        (["plain.npz", "left.npz", "--kernel", "rbf"], "'rbf' is not one of 'gaussian', 'laplace', 'cauchy'"),
        (
            ["plain.npz", "left.npz", "--kernel", "linear"],
            "kernel must be one of gaussian, laplace, cauchy; got 'linear'",
        ),
        (
            ["plain.npz", "left.npz", "--method", "jda", "--sigma", "2"],
            "--sigma is the width of a kernel, and the linear kernel has none",
        ),
        (
            ["plain.npz", "left.npz", "--method", "tca", "--num-features", "10"],
            "--num-features is not an option of tca; of these it takes --dim, --sigma, --gamma, --kernel",
        ),
        (
            ["plain.npz", "left.npz", "--method", "dann", "--gamma", "1"],
            "--gamma is not an option of dann; of these it takes --dim, --sigma, --seed",
        ),
        (
            ["plain.npz", "left.npz", "--method", "coral", "--dim", "10"],
            "--dim is not an option of coral; "
            "it takes none of --dim, --num-features, --sigma, --gamma, --kernel, --seed",
        ),
        (
            ["plain.npz", "left.npz", "--method", "all", "--out", "a.npz"],
            "--out writes the result of one method",
        ),
        (
            ["plain.npz", "unlabelled.npz", "--method", "all"],
            "--method all compares accuracies: both files need labels for that",
        ),
        (
            ["unlabelled.npz", "left.npz", "--method", "jda"],
            "JDA learns from labels of the source, and the source has none",
        ),
        (
            ["plain.npz", "left.npz", "--method", "gfk", "--dim", "65"],
            "the number of directions in which the source rows vary; got 65",
        ),
        (["plain.npz", "left.npz", "--method", "pca"], "'pca' is not one of 'rf-tca', 'r-tca', 'tca'"),
        (["plain.npz", "left.npz", "--out", "a.txt"], "--out must be an .npz file in a folder that exists"),
        (["plain.npz", "left.npz", "--seed", "-1"], "seed must be an integer from 0"),
        (["plain.npz", "left.npz", "--out", "plain.npz"], "--out would overwrite an input"),
        (["plain.npz", "left.npz", "--out", "folder.npz"], "--out must be an .npz file in a folder"),
    ],
)
def test_a_wrong_call_gets_one_line_and_exit_code_2(files, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(files)
    code, out, err = call(["align", *arguments], monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("fedrf: ")
    assert err.count("\n") == 1


def test_warnings_are_one_line_each(files, tmp_path):
    out = tmp_path / "run[v1].npz"
    done = run_process("align", files / "few.npz", files / "few.npz", "--dim", 9, "--gamma", "inf", "--out", out)
    assert done.returncode == 0
    assert done.stderr == "fedrf: warning: only 4 of the 9 components carry any variance; the others are zero\n"
    assert "run[v1].npz" in done.stdout.replace("\n", "")
    assert out.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def test_json_is_json_for_infinite_gamma(files, monkeypatch, capsys):
    arguments = ["align", files / "few.npz", files / "plain.npz", "--gamma", "inf", "--json"]
    assert json.loads(printed(arguments, monkeypatch, capsys), parse_constant=pytest.fail)["gamma"] == "inf"


def test_choices_are_those_of_the_registries():
    assert list(EstimatorName) == [*ESTIMATORS, "all"]
    assert list(KernelName) == [*KERNELS, "linear"]
    assert list(ScalingName) == list(SCALINGS)
