"""`python -m tune`: the command line of sweeps. Exit codes are those of `fedrf`."""

from __future__ import annotations

import json
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from fedrf.cli.exit_codes import INTERRUPTED, run_command
from fedrf.cli.options import Address, split_recipe
from fedrf.data.domains import clients_of
from fedrf.errors import RunFailedError
from fedrf.experiment.resolve import check_files, resolve_config
from fedrf.runtime.ray import RaySession
from tune.plan import Search, SweepPlan, check_folder, plan_sweep, start_or_resume
from tune.results import TrialResult, best, print_results, summarise, write_results
from tune.space import config_at

HELP = """Sweep γ, σ, N and T_C, or the keys of another space, and choose the best trial without labels.

The first trial is the recipe itself. Every trial is a complete federated run: it reserves what its clients need, waits
until that is free, and leaves a run directory. Trials are compared by the score `track.select`, by default the mutual
information of the predictions for the target; accuracies are only shown, if labels are known.

The folder then holds a table (`trials.csv`), `best.yaml` for `fedrf run`, `report.html` with plots, and
`summary.json`. To continue a sweep that was killed or interrupted, repeat the call with `--resume`; finished trials are
not run again.

Examples
--------
`python -m tune digits data.target=street --samples 20`

`python -m tune office31 data.target=webcam --space all --search bayes --samples 50 track.wandb=online`

`python -m tune digits --space gamma --search grid --to-the-end`

`python -m tune office-caltech10-surf data.sources=amazon --closed-form`
"""

SearchName = StrEnum("SearchName", ["random", "grid", "bayes"])
RecipeArgument = Annotated[
    list[str], typer.Argument(metavar="RECIPE | FILE.yaml [section.key=value]...", show_default=False)
]
SpaceOption = Annotated[str, typer.Option(help="default, all, gamma, interval, or your own YAML file.")]
SearchOption = Annotated[SearchName, typer.Option(help="bayes: Optuna's TPE, an extra.")]
SamplesOption = Annotated[int | None, typer.Option(help="Trials of random and bayes; default 12.", show_default=False)]
StoppingOption = Annotated[
    bool, typer.Option("--early-stopping/--to-the-end", help="Stop trials with low scores early (ASHA).")
]
ClosedFormOption = Annotated[
    bool, typer.Option("--closed-form", help="RF-TCA over the paper's γ, σ and N instead of federated runs.")
]
OutOption = Annotated[Path | None, typer.Option(help="Folder of the sweep; default sweeps/RECIPE.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the sweep in that folder.")]
ConcurrentOption = Annotated[
    int | None,
    typer.Option(help="Concurrent trials, fixed when the sweep starts; default: all that fit.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print summary.json, and nothing else.")]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command(no_args_is_help=True, help=HELP)
def sweep(
    recipe: RecipeArgument,
    space: SpaceOption = "default",
    search: SearchOption = SearchName["random"],
    samples: SamplesOption = None,
    early_stopping: StoppingOption = True,
    closed_form: ClosedFormOption = False,
    out: OutOption = None,
    resume: ResumeOption = False,
    concurrent: ConcurrentOption = None,
    address: Address = None,
    json_output: JsonOption = False,
) -> None:
    """Run a sweep; `HELP` is the text for users."""
    started, (name, overrides) = time.monotonic(), split_recipe(recipe)
    folder = out or Path("sweeps") / (Path(name).stem if name else "defaults")
    console = Console(highlight=False, stderr=json_output)
    if closed_form:
        summary, complete = _run_closed_form(name, overrides, folder, console), True
    else:
        method = cast(Search, search.value)
        plan = plan_sweep(name, overrides, space=space, search=method, samples=samples, early_stopping=early_stopping)
        results, complete = _run_trials(plan, folder, resume, address, concurrent)
        summary = _save_results(folder, results, time.monotonic() - started, console)
    if json_output:
        print(json.dumps(summary, indent=1))
    if complete and not closed_form and summary["best"] is None:
        raise RunFailedError(f"no trial finished; see {folder / 'trials.csv'}")
    if not complete:
        console.print("Interrupted. To continue, repeat the call with --resume.")
        raise typer.Exit(INTERRUPTED)


def _run_closed_form(recipe: str | None, overrides: list[str], folder: Path, console: Console) -> dict[str, Any]:
    from tune.closed_form_report import run_closed_form

    config = resolve_config(recipe, overrides)
    check_files(config)
    return run_closed_form(config, folder, console)


def _run_trials(
    plan: SweepPlan, folder: Path, resume: bool, address: str | None, concurrent: int | None
) -> tuple[list[TrialResult], bool]:
    from tune.sweep import run_sweep

    check_folder(plan, folder, resume)
    if not (address or os.environ.get("RAY_ADDRESS")):
        check_files(plan.config)
    with RaySession(address) as session:
        sources, target = clients_of(plan.config)
        session.check_resources((*sources, target), plan.config.resources)
        plan = start_or_resume(plan, folder, resume)
        return run_sweep(plan, folder, resume=resume, concurrent=concurrent)


def _save_results(folder: Path, results: list[TrialResult], seconds: float, console: Console) -> dict[str, Any]:
    """Write and print the results of all trials; return the summary."""
    from tune.report import write_report

    plan, chosen = SweepPlan.load(folder), best(results)
    summary = summarise(plan.model_dump(mode="json"), results, seconds)
    write_results(folder, summary, results, config_at(plan.given, chosen.point) if chosen else None)
    write_report(folder, summary, results, plan)
    print_results(folder, results, console)
    return summary


def main() -> None:
    """Run the command line."""
    run_command(app, "python -m tune")
