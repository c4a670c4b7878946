"""`fedrf align`: align two files of features with one of the estimators, or with all of them."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedrf.cli.options import JsonOutput

HELP = """Align two files of features, in closed form or by a small network (dann).

Features are read from the keys `fts`, `feas`, `features`, `X` …, labels from `labels`, `label`, `y` ….
Labels of the target are never used to align; those of the source are used by `jda` and `dann` only. If both files have
labels, classifiers are trained on the source and scored on the target, before and after alignment.

With `--method all`, each option is passed to the methods that have it.

Examples
--------
`fedrf align amazon_SURF_L10.mat webcam_SURF_L10.mat --scale standard --dim 20`

`fedrf align amazon_SURF_L10.mat webcam_SURF_L10.mat --scale standard --dim 20 --method all`
"""

# Written out because the registries import torch, which takes seconds; a test keeps them equal.
EstimatorName = StrEnum("EstimatorName", ["rf-tca", "r-tca", "tca", "jda", "coral", "gfk", "sa", "dann", "all"])
KernelName = StrEnum("KernelName", ["gaussian", "laplace", "cauchy", "linear"])
ScalingName = StrEnum("ScalingName", ["unit", "standard", "none"])

Source = Annotated[Path, typer.Argument(help="Features of the labelled domain, .npz or .mat.")]
Target = Annotated[Path, typer.Argument(help="Features of the new domain, .npz or .mat.")]
Method = Annotated[
    EstimatorName, typer.Option(help="rf-tca scales to millions of rows; all prints a table of accuracies.")
]
Dim = Annotated[
    int | None,
    typer.Option(
        help="m, the number of aligned components, of axes (gfk, sa) or of hidden units (dann).",
        show_default="100; jda, gfk, sa 20; dann 256",
    ),
]
NumFeatures = Annotated[
    int | None, typer.Option(help="N, the number of random frequencies (rf-tca).", show_default="1000")
]
Sigma = Annotated[str | None, typer.Option(help="Kernel width: a number, or 'median'.", show_default="median")]
Gamma = Annotated[str | None, typer.Option(help="Regularisation: a number ≥ 0, or 'auto'.", show_default="auto")]
Kernel = Annotated[
    KernelName | None, typer.Option(help="Kernel; linear for jda only.", show_default="gaussian; jda linear")
]
Scale = Annotated[
    ScalingName, typer.Option(help="Scale rows to norm 1, standardise columns, or leave features unchanged.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of random numbers (rf-tca, dann).", show_default="0")]
Out = Annotated[Path | None, typer.Option(help="Write aligned features to this .npz file.")]


def align(
    source: Source,
    target: Target,
    method: Method = EstimatorName["rf-tca"],
    dim: Dim = None,
    num_features: NumFeatures = None,
    sigma: Sigma = None,
    gamma: Gamma = None,
    kernel: Kernel = None,
    scale: Scale = ScalingName["unit"],
    seed: Seed = None,
    out: Out = None,
    json_output: JsonOutput = False,
) -> None:
    """Align two files of features; `HELP` is the text of `--help`."""
    from fedrf.cli import alignment

    if out is not None:
        _check_output(out, method, source, target)
    options = {
        "dim": dim,
        "num-features": num_features,
        "sigma": None if sigma is None else _number("sigma", sigma, "median"),
        "gamma": None if gamma is None else _number("gamma", gamma, "auto"),
        "kernel": None if kernel is None else str(kernel),
        "seed": seed,
    }
    if method == "all":
        summaries = alignment.align_with_all(source, target, scale, options)
        alignment.print_comparison(summaries, json_output)
    else:
        summary, unscored = alignment.align_with(method, source, target, scale, options, out)
        alignment.print_alignment(summary, unscored, json_output)


def _check_output(out: Path, method: str, *inputs: Path) -> None:
    """Check before the alignment whether the result can be written."""
    if method == "all":
        raise ValueError("--out writes the result of one method; --method all has several: name one")
    if out.suffix != ".npz" or not out.parent.is_dir() or out.is_dir():
        raise ValueError(f"--out must be an .npz file in a folder that exists; got {out}")
    if not os.access(out.parent, os.W_OK):
        raise ValueError(f"--out: the folder {out.parent} is not writable")
    if out.exists() and any(path.exists() and out.samefile(path) for path in inputs):
        raise ValueError(f"--out would overwrite an input: {out}")


def _number(name: str, text: str, word: str) -> float | str:
    if text == word:
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--{name} must be a number or {word!r}; got {text!r}") from None
