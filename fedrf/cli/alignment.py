"""What `fedrf align` does and prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedrf import estimators
from fedrf.data.feature_files import FeatureSet, load_features
from fedrf.experiment import closed_form
from fedrf.experiment.closed_form import AlignedPair

PARAMETERS = {"num-features": "num_features", "seed": "random_state"}  # of options with another name
Options = Mapping[str, Any]
Summary = dict[str, Any]


def align_with(
    method: str, source: Path, target: Path, scaling: str, options: Options, out: Path | None
) -> tuple[Summary, str]:
    """Align two files with one method; also return why there are no accuracies, or an empty string."""
    aligner = _make_aligner(method, options)
    if options["sigma"] is not None and getattr(aligner, "kernel", None) == "linear":
        raise ValueError("--sigma is the width of a kernel, and the linear kernel has none; give another --kernel")
    domains = _load(source, target, scaling)
    pair = closed_form.align_pair(*domains, aligner)
    if out is not None:
        closed_form.save_pair(pair, out)
    summary = _summarise(method, pair, closed_form.accuracies(*domains), (source, target), out)
    return summary, closed_form.why_not_scored(*domains)


def align_with_all(source: Path, target: Path, scaling: str, options: Options) -> list[Summary]:
    """Align two files with every method that can align them; each method gets the options that it has."""
    aligners = {name: _make_aligner(name, _options_for(name, options)) for name in estimators.ESTIMATORS}
    domains = _load(source, target, scaling)
    unscored = closed_form.why_not_scored(*domains)
    if unscored:
        raise ValueError(f"--method all compares accuracies: {unscored}")
    before: dict[str, float] = {}
    summaries: list[Summary] = []
    for name, aligner in aligners.items():
        try:
            pair = closed_form.align_pair(*domains, aligner)
        except ValueError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        before = before or closed_form.accuracies(*domains)
        summaries.append(_summarise(name, pair, before, (source, target)))
        print(f"[{len(summaries)}/{len(aligners)}] {name}: {pair.seconds:.2f} s", file=sys.stderr, flush=True)
    if not summaries:
        raise ValueError("--method all: no method can align this pair with these options")
    return summaries


def _load(source: Path, target: Path, scaling: str) -> tuple[FeatureSet, FeatureSet]:
    return closed_form.scaled(load_features(source), scaling), closed_form.scaled(load_features(target), scaling)


def _options_for(method: str, options: Options) -> Options:
    """Return the options without those that the method does not have; only jda has a linear kernel."""
    parameters = _parameters_of(method)
    return {
        option: value
        for option, value in options.items()
        if PARAMETERS.get(option, option) in parameters and (value != "linear" or method == "jda")
    }


def _make_aligner(method: str, options: Options) -> Any:
    """Return an aligner with the options that were given."""
    parameters = _parameters_of(method)
    names = {option: PARAMETERS.get(option, option) for option in options}
    settings: dict[str, Any] = {"gamma": "auto"} if "gamma" in parameters else {}
    for option, value in options.items():
        if value is None:
            continue
        if names[option] not in parameters:
            allowed = ", ".join(f"--{other}" for other, name in names.items() if name in parameters)
            takes = f"of these it takes {allowed}" if allowed else f"it takes none of --{', --'.join(names)}"
            raise ValueError(f"--{option} is not an option of {method}; {takes}")
        settings[names[option]] = value
    return estimators.ESTIMATORS[method](**settings)


def _parameters_of(method: str) -> list[str]:
    parameters: list[str] = estimators.ESTIMATORS[method]._get_param_names()
    return parameters


def _summarise(
    method: str, pair: AlignedPair, before: dict[str, float], files: tuple[Path, Path], out: Path | None = None
) -> Summary:
    """Return the result as plain values; `before` has the accuracies without alignment."""
    source, target = files
    after = closed_form.accuracies(pair.aligned_source, pair.aligned_target)
    return {
        "method": method,
        "source": {"file": str(source), "samples": len(pair.source.features)},
        "target": {"file": str(target), "samples": len(pair.target.features)},
        "columns": pair.source.features.shape[1],
        "dim": pair.aligned_source.features.shape[1],
        **_fitted_values(pair.aligner),
        "target_accuracy": {name: {"before": before[name], "after": after[name]} for name in before},
        "seconds": pair.seconds,
        "out": str(out) if out else None,
    }


def _fitted_values(aligner: Any) -> Summary:
    """Return σ, γ and the MMD, as far as the method has them."""
    values: Summary = {}
    if hasattr(aligner, "sigma_"):
        values["sigma"] = aligner.sigma_
    if hasattr(aligner, "gamma_"):
        values["gamma"] = aligner.gamma_ if isfinite(aligner.gamma_) else str(aligner.gamma_)
    if hasattr(aligner, "mmd_"):
        values["mmd"] = aligner.mmd_._asdict()
    return values


def print_alignment(summary: Summary, unscored: str, json_output: bool) -> None:
    """Print the result of one method; `unscored` says why there are no accuracies."""
    if json_output:
        print(json.dumps(summary, indent=1))
        return
    console = Console(markup=False, highlight=False)
    sizes = "{method}: {columns} columns to {dim} components in {seconds:.2f} s".format(**summary)
    values = [f"{symbol} = {summary[name]:.4}" for name, symbol in (("sigma", "σ"), ("gamma", "γ")) if name in summary]
    console.print(sizes + (f" ({', '.join(values)})" if values else ""))
    table = Table(box=None, pad_edge=False)
    for column in ("", "before", "after"):
        table.add_column(column, justify="right" if column else "left")
    if "mmd" in summary:
        table.add_row("MMD² / variance", *(f"{value:.4f}" for value in summary["mmd"].values()))
    for name, score in summary["target_accuracy"].items():
        table.add_row(f"{name} accuracy on the target", f"{score['before']:.1%}", f"{score['after']:.1%}")
    if table.row_count:
        console.print(table)
    if unscored:
        console.print(f"No accuracies: {unscored}.")
    if summary["out"]:
        console.print(f"Aligned features written to {summary['out']}")


def print_comparison(summaries: list[Summary], json_output: bool) -> None:
    """Print the accuracies without alignment, and with each method."""
    if json_output:
        print(json.dumps(summaries, indent=1))
        return
    scores = summaries[0]["target_accuracy"]
    table = Table(box=None, pad_edge=False)
    table.add_column("accuracy on the target in %")
    for column in (*scores, "components", "seconds"):
        table.add_column(column, justify="right")
    table.add_row("no alignment", *(f"{100 * score['before']:.1f}" for score in scores.values()), "", "")
    for summary in summaries:
        accuracies = (f"{100 * score['after']:.1f}" for score in summary["target_accuracy"].values())
        table.add_row(summary["method"], *accuracies, str(summary["dim"]), f"{summary['seconds']:.2f}")
    Console(markup=False, highlight=False).print(table)
