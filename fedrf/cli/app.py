"""The command line. Exit code 0: done, 1: the run failed, 2: the call or its input is wrong (one line says how)."""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import asdict
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from fedrf.errors import RunFailedError

app = typer.Typer(
    help="Federated domain adaptation with random features.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

data_app = typer.Typer(help="Show which data sets are there, and what is in them.", no_args_is_help=True)
app.add_typer(data_app, name="data")

INTERRUPTED = 130

# Written out because the registries import torch, which takes seconds; a test keeps them equal.
Method = StrEnum("Method", ["rf-tca", "r-tca", "tca", "jda", "coral", "gfk", "sa", "dann", "all"])
KernelName = StrEnum("KernelName", ["gaussian", "laplace", "cauchy", "linear"])
Scaling = StrEnum("Scaling", ["unit", "standard", "none"])
SourceKind = StrEnum("SourceKind", ["all", "each", "both"])

DataRoot = Annotated[str | None, typer.Option(help="Folder of the data sets; default $FEDRF_DATA.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """Federated domain adaptation with random features."""
    if version:
        from fedrf import __version__

        print(f"fedrf {__version__}")
        raise typer.Exit


@app.command()
def doctor(
    data_root: DataRoot = None,
    address: Annotated[str | None, typer.Option(help="Ray cluster to ask; default $RAY_ADDRESS.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what this machine or cluster can run, and what to do about what is missing.

    Exit code 1 when something that fedrf cannot do without is wrong.
    """
    from fedrf.cli import doctor as report

    raise typer.Exit(report.run(data_root, address, json_output))


@app.command()
def run(
    recipe: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE | FILE.yaml] [section.key=value]...", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default a new one below runs/.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random; the same as seed=S.")] = None,
    local: Annotated[bool, typer.Option("--local", help="Threads in this process instead of Ray actors.")] = False,
    address: Annotated[str | None, typer.Option(help="Ray cluster; default $RAY_ADDRESS, else this machine.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this directory.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print summary.json, and nothing else.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="List all configuration keys and exit.")] = False,
) -> None:
    """Train a classifier for an unlabelled domain, with every client in a process of its own.

    Without arguments: fedrf-plus on the embedded digits. Ctrl-C saves a checkpoint, and `--resume` goes on from it.

    Examples
    --------
    `fedrf run data.target=street method=fedrf-tca federation.mode=sync`

    `fedrf run my.yaml train.rounds=500 federation.participants=random federation.classifier_interval=50`

    `fedrf run --resume runs/digits-street-fedrf-plus-20261116-101500-123`
    """
    if keys:
        _print_keys()
        return
    given = list(recipe or [])
    name = given.pop(0) if given and "=" not in given[0] else None
    if resume is not None and (name or given or out or seed is not None):
        raise ValueError(
            "--resume takes the configuration of the run that it continues: no recipe, keys, --out, --seed"
        )
    from fedrf.experiment.display import print_summary
    from fedrf.experiment.run import run as run_experiment

    result = run_experiment(name, given, out=out, seed=seed, local=local, address=address, resume=resume)
    if json_output:
        print(json.dumps(result.summary, indent=1))
    else:
        print_summary(result, Console(highlight=False))
    if not result.finished:
        raise typer.Exit(INTERRUPTED)


@app.command(no_args_is_help=True)
def compare(
    recipe: Annotated[
        list[str],
        typer.Argument(metavar="RECIPE | FILE.yaml [section.key=value]...", show_default=False),
    ],
    methods: Annotated[
        str | None, typer.Option(help="Names with commas, or all; default four of them. The first is the reference.")
    ] = None,
    targets: Annotated[
        str | None, typer.Option(help="Domains with commas, or all that are there; default the recipe's.")
    ] = None,
    sources: Annotated[
        SourceKind, typer.Option(help="All other domains together, each alone, or both kinds of task.")
    ] = SourceKind["all"],
    seeds: Annotated[str, typer.Option(help="With commas.")] = "0,1,2",
    ablate: Annotated[
        bool, typer.Option("--ablate", help="fedrf-plus without one ingredient at a time, and without all.")
    ] = False,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V,V...", help="fedrf-plus, or --methods, with each value; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default a new one below comparisons/.")] = None,
    local: Annotated[bool, typer.Option("--local", help="Threads in this process instead of Ray actors.")] = False,
    address: Annotated[str | None, typer.Option(help="Ray cluster; default $RAY_ADDRESS, else this machine.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print comparison.json, and nothing else.")] = False,
) -> None:
    """Compare methods over tasks and seeds: accuracy on the target after the last round, mean ± deviation, and tests.

    The folder has a run directory for each task, variant and seed, and `table.md`, `table.tex`, `table.csv` and
    `comparison.json`, which are renewed after every run. Of finished runs the target's final weights stay, and no
    checkpoints. The same call with the same `--out` goes on where it was broken off; with more seeds, methods or
    targets it runs only what is not there.

    Examples
    --------
    `fedrf compare digits --methods source-only,fedavg,fedrf-plus --targets all --out comparisons/digits`

    `fedrf compare office31 --targets all --sources both federation.mode=sync --seeds 0,1,2,3,4`

    `fedrf compare digits --ablate --methods source-only --targets rendered,street`

    `fedrf compare digits --vary align.gamma=0.0005,0.005,0.05 --vary model.num_features=125,250,500 --targets all`
    """
    from fedrf.comparison.compare import compare as run_comparison
    from fedrf.comparison.compare import new_folder
    from fedrf.comparison.export import as_json
    from fedrf.comparison.plan import plan_comparison
    from fedrf.comparison.rendering import print_tables

    given = list(recipe)
    plan = plan_comparison(
        given.pop(0) if "=" not in given[0] else None,
        given,
        methods=_listed("methods", methods),
        targets=_listed("targets", targets),
        sources=cast(Any, sources.value),
        seeds=[_whole_number("seeds", one) for one in _listed("seeds", seeds)],
        ablate=ablate,
        vary=vary or [],
        require_files=local or not (address or os.environ.get("RAY_ADDRESS")),
    )
    for note in plan.notes:
        warnings.warn(note, stacklevel=1)
    comparison, complete = run_comparison(plan, out or new_folder(plan), local=local, address=address)
    if plan.varied_keys:
        from fedrf.comparison.plots import write_plots

        write_plots(comparison)
    if json_output:
        print(json.dumps(as_json(comparison), indent=1))
    else:
        print_tables(comparison, Console(highlight=False))
    if not complete:
        print(f"Interrupted. To go on, repeat the call with --out {comparison.folder}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    failed = len(comparison.failed())
    if failed:
        raise RunFailedError(f"{failed} of {len(comparison.runs)} runs failed; {comparison.folder}/table.csv has why")


def _listed(option: str, text: str | None) -> list[str]:
    """Return the words of a list with commas."""
    words = [] if text is None else [word.strip() for word in text.split(",")]
    if not all(words):
        raise ValueError(f"--{option} takes words with commas between them; got {text!r}")
    return words


def _whole_number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"--{option} takes whole numbers, at least 0, with commas between them; got {text!r}")
    return int(text)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page about one or several runs."""
    from fedrf.experiment.report import write_report

    write_report(runs, out)
    print(f"Written to {out}")


def _print_keys() -> None:
    from fedrf.config.keys import describe_keys

    table = Table(box=None, pad_edge=False)
    for column in ("key", "default", "allowed", "meaning"):
        table.add_column(column, no_wrap=column == "key")
    for key, default, allowed, meaning in describe_keys():
        table.add_row(key, default, allowed, meaning)
    Console(highlight=False, markup=False).print(table)


@data_app.command("list")
def list_data(
    data_root: DataRoot = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List all data sets, their domains, which of these are below the data root, and where to get the others.

    Names and spelling of folders may vary: `Office-31`, `office_31` and `office31` are the same. With `--json`, every
    domain that is missing comes with the places where it was looked for.

    Example: `fedrf data list --data-root ~/datasets`
    """
    from fedrf.cli import data_check as work
    from fedrf.data.dataset import data_root as find_root

    folder = find_root(data_root)
    if folder is not None and not folder.is_dir():
        raise ValueError(f"--data-root {folder}: no such folder")
    holdings = work.survey(folder)
    if json_output:
        print(
            json.dumps(
                {"root": str(folder) if folder else None, "datasets": [asdict(one) for one in holdings]}, indent=1
            )
        )
    else:
        work.print_survey(holdings, folder, Console(highlight=False))


@data_app.command("check")
def check_data(
    name: Annotated[str, typer.Argument(help="A data set; `fedrf data list` has them.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="data.key=value", help="As for a run; also `seed`.", show_default=False),
    ] = None,
    data_root: DataRoot = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image, to find corrupt files.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Load a data set and show what is in it: samples of each domain and class, and whether any are missing.

    With a `data.partition`, show what each client would hold in a run with the same keys and the same seed.
    Exit code 1 when a domain is missing or wrong, or an image is corrupt.

    Examples
    --------
    `fedrf data check office31 --data-root ~/datasets --decode`

    `fedrf data check digits data.partition=dirichlet data.clients=4 data.concentration=0.1 seed=1`

    `fedrf data check folder data.root=~/my-images data.target=new-camera`
    """
    from fedrf.cli import data_check as work

    found = work.check(name, overrides or [], data_root, decode)
    if json_output:
        print(json.dumps(found.as_json(), indent=1))
    else:
        work.print_report(found, Console(highlight=False))
    raise typer.Exit(0 if found.ok else 1)


@app.command()
def align(
    source: Annotated[Path, typer.Argument(help="Features of the labelled domain, .npz or .mat.")],
    target: Annotated[Path, typer.Argument(help="Features of the new domain, .npz or .mat.")],
    method: Annotated[
        Method, typer.Option(help="rf-tca scales to millions of rows; all: a table of their accuracies.")
    ] = Method["rf-tca"],
    dim: Annotated[
        int | None,
        typer.Option(
            help="m, the number of aligned components, of axes (gfk, sa) or of hidden units (dann).",
            show_default="100; jda, gfk, sa 20; dann 256",
        ),
    ] = None,
    num_features: Annotated[
        int | None, typer.Option(help="N, the number of random frequencies (rf-tca).", show_default="1000")
    ] = None,
    sigma: Annotated[
        str | None, typer.Option(help="Kernel width: a number, or 'median'.", show_default="median")
    ] = None,
    gamma: Annotated[
        str | None, typer.Option(help="Regularisation: a number ≥ 0, or 'auto'.", show_default="auto")
    ] = None,
    kernel: Annotated[
        KernelName | None, typer.Option(help="Kernel; linear for jda only.", show_default="gaussian; jda linear")
    ] = None,
    scale: Annotated[Scaling, typer.Option(help="Rows to norm 1, columns standardised, or as is.")] = Scaling["unit"],
    seed: Annotated[int | None, typer.Option(help="Seed of what is random (rf-tca, dann).", show_default="0")] = None,
    out: Annotated[Path | None, typer.Option(help="Write aligned features to this .npz file.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Align two files of features, in closed form or by a small network (dann).

    Features are read from the keys `fts`, `feas`, `features`, `X` …, labels from `labels`, `label`, `y` ….
    Labels of the target are never used to align, those of the source by `jda` and `dann` only. Where both files have
    them, classifiers are trained on the source and scored on the target, before and after.

    With `--method all` every option goes to the methods that have it.

    Examples
    --------
    `fedrf align amazon_SURF_L10.mat webcam_SURF_L10.mat --scale standard --dim 20`

    `fedrf align amazon_SURF_L10.mat webcam_SURF_L10.mat --scale standard --dim 20 --method all`
    """
    from fedrf.data.feature_files import load_features
    from fedrf.estimators import ESTIMATORS
    from fedrf.experiment import closed_form as work

    every = method == "all"
    if out is not None:
        if every:
            raise ValueError("--out takes the result of one method, and --method all has many; name one")
        _check_output(out, source, target)
    options = {
        "dim": dim,
        "num-features": num_features,
        "sigma": None if sigma is None else _number("sigma", sigma, "median"),
        "gamma": None if gamma is None else _number("gamma", gamma, "auto"),
        "kernel": None if kernel is None else str(kernel),
        "seed": seed,
    }
    aligners = {name: _make(name, one, options, every) for name, one in ESTIMATORS.items() if every or name == method}
    here, there = (work.scaled(load_features(path), scale) for path in (source, target))
    unscored = work.why_not_scored(here, there)
    if every and unscored:
        raise ValueError(f"--method all compares accuracies: {unscored}")
    before: dict[str, float] = {}
    summaries = []
    for name, aligner in aligners.items():
        try:
            pair = work.align_pair(here, there, aligner)
        except ValueError as error:
            if not every:
                raise
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        if out is not None:
            work.save_pair(pair, out)
        before = before or work.accuracies(pair.source, pair.target)
        after = work.accuracies(pair.aligned_source, pair.aligned_target)
        summaries.append(
            {
                "method": name,
                "source": {"file": str(source), "samples": len(pair.source.features)},
                "target": {"file": str(target), "samples": len(pair.target.features)},
                "columns": pair.source.features.shape[1],
                "dim": pair.aligned_source.features.shape[1],
                **_found(aligner),
                "target_accuracy": {key: {"before": before[key], "after": after[key]} for key in before},
                "seconds": pair.seconds,
                "out": str(out) if out else None,
            }
        )
        if every:
            print(f"[{len(summaries)}/{len(aligners)}] {name}: {pair.seconds:.2f} s", file=sys.stderr, flush=True)
    if not summaries:
        raise ValueError("--method all: no method can align this pair with these options")
    if json_output:
        print(json.dumps(summaries if every else summaries[0], indent=1))
    elif every:
        _print_methods(summaries)
    else:
        _print_alignment(summaries[0], unscored)


PARAMETERS = {"num-features": "num_features", "seed": "random_state"}  # of options whose name is another


def _make(method: str, estimator: Any, options: dict[str, Any], lenient: bool) -> Any:
    """Return an aligner with the options that were given; where lenient, without those that it does not have."""
    parameters = estimator._get_param_names()
    known = {option: PARAMETERS.get(option, option) for option in options}
    settings = {"gamma": "auto"} if "gamma" in parameters else {}
    for option, value in options.items():
        if value is None or (lenient and (known[option] not in parameters or (value == "linear" and method != "jda"))):
            continue
        if known[option] not in parameters:
            allowed = ", ".join(f"--{one}" for one, name in known.items() if name in parameters)
            every = ", ".join(f"--{one}" for one in known)
            takes = f"of these it takes {allowed}" if allowed else f"it takes none of {every}"
            raise ValueError(f"--{option} is no option of {method}; {takes}")
        settings[known[option]] = value
    aligner = estimator(**settings)
    if options["sigma"] is not None and getattr(aligner, "kernel", None) == "linear" and not lenient:
        raise ValueError("--sigma is the width of a kernel, and the linear one has none; give another --kernel")
    return aligner


def _found(aligner: Any) -> dict[str, Any]:
    """Return what the method has settled or measured; not every one has a kernel or a regularisation."""
    found = {}
    if hasattr(aligner, "sigma_"):
        found["sigma"] = aligner.sigma_
    if hasattr(aligner, "gamma_"):
        found["gamma"] = aligner.gamma_ if isfinite(aligner.gamma_) else str(aligner.gamma_)
    if hasattr(aligner, "mmd_"):
        found["mmd"] = aligner.mmd_._asdict()
    return found


def _print_alignment(summary: dict[str, Any], unscored: str) -> None:
    console = Console(markup=False, highlight=False)
    sizes = "{method}: {columns} columns to {dim} components in {seconds:.2f} s".format(**summary)
    settled = [f"{sign} = {summary[name]:.4}" for name, sign in (("sigma", "σ"), ("gamma", "γ")) if name in summary]
    console.print(sizes + (f" ({', '.join(settled)})" if settled else ""))
    table = Table(box=None, pad_edge=False)
    for column in ("", "before", "after"):
        table.add_column(column, justify="left" if not column else "right")
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


def _print_methods(summaries: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("accuracy on the target in %")
    rows = {"no alignment": {name: score["before"] for name, score in summaries[0]["target_accuracy"].items()}} | {
        one["method"]: {name: score["after"] for name, score in one["target_accuracy"].items()} for one in summaries
    }
    for column in (*rows["no alignment"], "components", "seconds"):
        table.add_column(column, justify="right")
    sizes = [("", ""), *((str(one["dim"]), f"{one['seconds']:.2f}") for one in summaries)]
    for (method, scores), size in zip(rows.items(), sizes, strict=True):
        table.add_row(method, *(f"{100 * score:.1f}" for score in scores.values()), *size)
    Console(markup=False, highlight=False).print(table)


def _check_output(out: Path, *inputs: Path) -> None:
    """Find out before the work whether its result can be written."""
    if out.suffix != ".npz" or not out.parent.is_dir() or out.is_dir():
        raise ValueError(f"--out must be an .npz file in a folder that exists; got {out}")
    if not os.access(out.parent, os.W_OK):
        raise ValueError(f"--out: the folder {out.parent} cannot be written to")
    if out.exists() and any(path.exists() and out.samefile(path) for path in inputs):
        raise ValueError(f"--out would overwrite an input: {out}")


def _number(name: str, text: str, word: str) -> float | str:
    if text == word:
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--{name} must be a number or {word!r}; got {text!r}") from None


def main() -> None:
    """Run the command line."""
    run_command(app)


def run_command(app: typer.Typer, name: str = "fedrf") -> None:
    """Run a command line; a user's slip gives one line and exit code 2, never a traceback."""

    def complain(message: str) -> None:
        if message:
            print(f"{name}: {' '.join(message.split())}", file=sys.stderr)

    warnings.showwarning = lambda message, *_, **__: complain(f"warning: {message}")
    command = typer.main.get_command(app)
    try:
        sys.exit(command.main(prog_name=name, standalone_mode=False))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except Exception as error:
        shown = getattr(error, "format_message", None)
        if shown is None and not isinstance(error, ValueError | OSError | MemoryError | RunFailedError):
            raise
        complain(shown() if shown else str(error))
        sys.exit(2 if shown or isinstance(error, ValueError) else 1)
