"""`fedrf run`: train a classifier for an unlabelled domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrf.cli.exit_codes import INTERRUPTED
from fedrf.cli.options import Address, Local, Simulate, split_recipe

if TYPE_CHECKING:
    from fedrf.experiment.results import RunResult

Recipe = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECIPE | FILE.yaml] [section.key=value]...", show_default=False),
]
Out = Annotated[Path | None, typer.Option(help="Run directory; default a new one below runs/.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all random numbers; the same as seed=S.")]
Resume = Annotated[
    str | None, typer.Option(metavar="DIR", help="Continue the run in this directory, or at this URL in track.storage.")
]
JsonSummary = Annotated[bool, typer.Option("--json", help="Print only summary.json.")]
Keys = Annotated[bool, typer.Option("--keys", help="List all configuration keys and exit.")]


def run(
    recipe: Recipe = None,
    out: Out = None,
    seed: Seed = None,
    local: Local = False,
    simulate: Simulate = False,
    address: Address = None,
    resume: Resume = None,
    json_output: JsonSummary = False,
    keys: Keys = False,
) -> None:
    """Train a classifier for an unlabelled domain; each client is a process of its own.

    Without arguments, the default method runs on the embedded digits. Ctrl-C saves a checkpoint, from which `--resume`
    continues. `fedrf methods` and `fedrf datasets` list the names that `method` and `data.name` take.

    Examples
    --------
    `fedrf run digits data.target=street method=NAME federation.mode=sync`

    `fedrf run my.yaml method=NAME train.rounds=500 federation.participants=random federation.classifier_interval=50`

    `fedrf run --resume runs/DIRECTORY`
    """
    if keys:
        _print_keys()
        return
    name, overrides = split_recipe(recipe or [])
    if resume is not None and (recipe or out or simulate or seed is not None):
        raise ValueError(
            "--resume uses the configuration of the run; a recipe, keys, --out, --simulate and --seed are not allowed"
        )
    if simulate:
        overrides = [*overrides, "simulation.enabled=true"]
    from fedrf.experiment.run import run as run_experiment

    result = run_experiment(name, overrides, out=out, seed=seed, local=local, address=address, resume=resume)
    _print_result(result, json_output)
    if not result.finished:
        raise typer.Exit(INTERRUPTED)


def _print_result(result: RunResult, json_output: bool) -> None:
    if json_output:
        print(json.dumps(result.summary, indent=1))
        return
    from rich.console import Console

    from fedrf.experiment.display import print_summary

    print_summary(result, Console(highlight=False))


def _print_keys() -> None:
    from rich.console import Console
    from rich.table import Table

    from fedrf.config.keys import describe_keys

    table = Table(box=None, pad_edge=False)
    for column in ("key", "default", "allowed", "meaning"):
        table.add_column(column, no_wrap=column == "key")
    for key in describe_keys():
        table.add_row(*key)
    Console(highlight=False, markup=False).print(table)
