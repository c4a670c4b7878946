"""`fedrf compare`: several methods over tasks and seeds."""

from __future__ import annotations

import json
import os
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fedrf.cli.exit_codes import INTERRUPTED
from fedrf.cli.options import Address, Local, split_recipe
from fedrf.errors import RunFailedError

if TYPE_CHECKING:
    from fedrf.comparison.results import Comparison

HELP = """Compare methods over tasks and seeds: accuracy on the target after the last round, and statistical tests.

Tables show the mean and the standard deviation over seeds. The folder has a run directory for each task, variant and
seed, and `table.md`, `table.tex`, `table.csv` and `comparison.json`, which are updated after every run. Finished runs
keep the final weights of the target and no checkpoints.

To continue an interrupted comparison, repeat the call with the same `--out`. With more seeds, methods or targets, only
the missing runs are started. `fedrf methods` lists the names that `--methods` takes.

Examples
--------
`fedrf compare digits --targets all --out comparisons/digits`

`fedrf compare office31 --methods all --targets all --sources both federation.mode=sync --seeds 0,1,2,3,4`

`fedrf compare digits --ablate --targets rendered,street`

`fedrf compare digits --vary align.ridge=0.1,1,10 --vary model.num_features=125,250,500 --targets all`
"""

SourceKind = StrEnum("SourceKind", ["all", "each", "both"])

Recipe = Annotated[list[str], typer.Argument(metavar="RECIPE | FILE.yaml [section.key=value]...", show_default=False)]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Names separated by commas, or all; default fedrf's own methods and two simple ones. "
        "Tests compare the first with each of the others."
    ),
]
Targets = Annotated[
    str | None, typer.Option(help="Domains separated by commas, or all that are found; default the recipe's.")
]
Sources = Annotated[
    SourceKind, typer.Option(help="Tasks with all other domains as sources, with each alone, or both kinds.")
]
Seeds = Annotated[str, typer.Option(help="Numbers separated by commas.")]
Ablate = Annotated[
    bool,
    typer.Option(
        "--ablate",
        help="A method without one ingredient at a time, and without all of them: the first of --methods that has "
        "ingredients, or the default method.",
    ),
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=V,V...",
        help="The default method, or --methods, with each value of a key; the option can be repeated.",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder; default a new one below comparisons/.")]
JsonComparison = Annotated[bool, typer.Option("--json", help="Print only comparison.json.")]


def compare(
    recipe: Recipe,
    methods: Methods = None,
    targets: Targets = None,
    sources: Sources = SourceKind["all"],
    seeds: Seeds = "0,1,2",
    ablate: Ablate = False,
    vary: Vary = None,
    out: Out = None,
    local: Local = False,
    address: Address = None,
    json_output: JsonComparison = False,
) -> None:
    """Compare methods over tasks and seeds; `HELP` is the text of `--help`."""
    from fedrf.comparison.compare import compare as run_comparison
    from fedrf.comparison.compare import new_folder
    from fedrf.comparison.plan import plan_comparison

    plan = plan_comparison(
        *split_recipe(recipe),
        methods=_words("methods", methods),
        targets=_words("targets", targets),
        sources=cast(Any, sources.value),
        seeds=[_whole_number("seeds", word) for word in _words("seeds", seeds)],
        ablate=ablate,
        vary=vary or [],
        require_files=local or not (address or os.environ.get("RAY_ADDRESS")),
    )
    for note in plan.notes:
        warnings.warn(note, stacklevel=1)
    comparison, complete = run_comparison(plan, out or new_folder(plan), local=local, address=address)
    _print_comparison(comparison, json_output)
    if not complete:
        print(f"Interrupted. To continue, repeat the call with --out {comparison.folder}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    failed = len(comparison.failed())
    if failed:
        raise RunFailedError(f"{failed} of {len(comparison.runs)} runs failed; see {comparison.folder}/table.csv")


def _print_comparison(comparison: Comparison, json_output: bool) -> None:
    """Print the tables, and plot the series of values if there are any."""
    from fedrf.comparison.export import as_json
    from fedrf.comparison.rendering import print_tables

    if comparison.plan.varied_keys:
        from fedrf.comparison.plots import write_plots

        write_plots(comparison)
    if json_output:
        print(json.dumps(as_json(comparison), indent=1))
        return
    from rich.console import Console

    print_tables(comparison, Console(highlight=False))


def _words(option: str, text: str | None) -> list[str]:
    """Return the words of a list that is separated by commas."""
    words = [] if text is None else [word.strip() for word in text.split(",")]
    if not all(words):
        raise ValueError(f"--{option} takes words separated by commas; got {text!r}")
    return words


def _whole_number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"--{option} takes whole numbers, at least 0, separated by commas; got {text!r}")
    return int(text)
