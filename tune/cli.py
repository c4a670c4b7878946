"""`python -m tune`: the command line of sweeps. Exit codes are those of `fedrf`."""

from __future__ import annotations

import json
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console

from fedrf.cli.app import INTERRUPTED, run_command
from fedrf.errors import RunFailedError
from fedrf.experiment.run import check_files, settled_config
from tune.plan import Search, begin, make_plan

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
SearchName = StrEnum("SearchName", ["random", "grid", "bayes"])


@app.command(no_args_is_help=True)
def sweep(
    recipe: Annotated[
        list[str],
        typer.Argument(metavar="RECIPE | FILE.yaml [section.key=value]...", show_default=False),
    ],
    space: Annotated[str, typer.Option(help="default, all, gamma, interval, or a YAML file of your own.")] = "default",
    search: Annotated[SearchName, typer.Option(help="bayes: Optuna's TPE, an extra.")] = SearchName["random"],
    samples: Annotated[
        int | None, typer.Option(help="Trials of random and bayes; default 12.", show_default=False)
    ] = None,
    early_stopping: Annotated[
        bool, typer.Option("--early-stopping/--to-the-end", help="End trials whose score falls behind (ASHA).")
    ] = True,
    closed_form: Annotated[
        bool, typer.Option("--closed-form", help="RF-TCA over the paper's γ, σ and N instead of federated runs.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep; default sweeps/RECIPE.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the sweep in that folder.")] = False,
    concurrent: Annotated[
        int | None,
        typer.Option(help="Trials at a time, from the beginning on; default: all that fit.", show_default=False),
    ] = None,
    address: Annotated[str | None, typer.Option(help="Ray cluster; default $RAY_ADDRESS, else this machine.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print summary.json, and nothing else.")] = False,
) -> None:
    """Sweep γ, σ, N and T_C, or whatever a space names, and choose without labels.

    The first trial is the recipe as it is. Every trial is a whole federation: it reserves what its clients need, waits
    until that is free, and leaves a run directory. Trials compare by the score `track.select`, by default how much the
    predictions for the target tell (information maximisation); accuracies, where labels are known, are only shown.

    The folder then has a table (`trials.csv`), `best.yaml` for `fedrf run`, `report.html` with pictures, and
    `summary.json`. A sweep that was killed or interrupted goes on when the call is repeated with `--resume`; trials
    that finished are not run again.

    Examples
    --------
    `python -m tune digits data.target=street --samples 20`

    `python -m tune office31 data.target=webcam --space all --search bayes --samples 50 track.wandb=online`

    `python -m tune digits --space gamma --search grid --to-the-end`

    `python -m tune office-caltech10-surf data.sources=amazon --closed-form`
    """
    began, given = time.monotonic(), list(recipe)
    name = given.pop(0) if "=" not in given[0] else None
    folder = out or Path("sweeps") / (Path(name).stem if name else "defaults")
    console = Console(highlight=False, stderr=json_output)
    if closed_form:
        from tune.closed_form_report import run_closed_form

        config = settled_config(name, given)
        check_files(config)
        summary = run_closed_form(config, folder, console)
        complete, failed = True, False
    else:
        from tune.outcome import best, print_table, summarise, write
        from tune.report import write_report
        from tune.space import varied
        from tune.sweep import run_sweep

        wanted = make_plan(
            name, given, space=space, search=cast(Search, search.value), samples=samples, early_stopping=early_stopping
        )
        if not (address or os.environ.get("RAY_ADDRESS")):
            check_files(wanted.config)
        plan = begin(wanted, folder, resume)
        outcomes, complete = run_sweep(plan, folder, resume=resume, address=address, concurrent=concurrent)
        plan = plan.load(folder)
        chosen = best(outcomes)
        summary = summarise(plan.model_dump(mode="json"), outcomes, time.monotonic() - began)
        write(folder, summary, outcomes, varied(plan.given, chosen.point) if chosen else None)
        write_report(folder, summary, outcomes, plan)
        print_table(folder, outcomes, console)
        failed = complete and chosen is None
    if json_output:
        print(json.dumps(summary, indent=1))
    if failed:
        raise RunFailedError(f"no trial finished; see {folder / 'trials.csv'}")
    if not complete:
        console.print("Interrupted. To go on, repeat the call with --resume.")
        raise typer.Exit(INTERRUPTED)


def main() -> None:
    """Run the command line."""
    run_command(app, "python -m tune")
