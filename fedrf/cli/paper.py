"""`fedrf paper`: the tables and figures of the paper, by name."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrf.cli.exit_codes import INTERRUPTED
from fedrf.cli.options import DataRoot, JsonOutput

if TYPE_CHECKING:
    from fedrf.paper.plan import Experiment
    from fedrf.paper.setting import Setting

app = typer.Typer(no_args_is_help=True, help="Repeat the tables and figures of the paper, by name.")
Identifiers = Annotated[list[str], typer.Argument(metavar="ID", help="Names from `fedrf paper list`, or all.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="The same recipes scaled down to two cores and to the data that is there.")
]
Out = Annotated[Path, typer.Option(help="Folder of runs, tables, figures and paper.html.")]
Seeds = Annotated[str | None, typer.Option(help="Seeds, such as 0,1,2; default those of the recipe.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Jobs at a time on this machine.", show_default="one for each core")
]
Address = Annotated[str | None, typer.Option(help="Run side by side, as actors, on this Ray cluster.")]
FOLDER = Path("paper")


@app.command("list")
def list_(data_root: DataRoot = None, out: Out = FOLDER, json_output: JsonOutput = False) -> None:
    """Show every table and figure: where it is in the paper, whether it can be run here, and whether it has been."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fedrf.paper.experiments import EXPERIMENTS
    from fedrf.paper.setting import Setting

    settings = [Setting(quick, data_root) for quick in (False, True)]
    entries = [_describe(experiment, settings, out) for experiment in EXPERIMENTS.values()]
    if json_output:
        print(json.dumps(entries, indent=1, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("ID", "what", "in full", "--quick", "done"):
        table.add_column(column, no_wrap=column == "ID")
    for entry in entries:
        table.add_row(*(escape(str(entry[key] or "–")) for key in ("id", "title", "full", "quick", "done")))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "\n`fedrf paper run ID --quick` runs one, `fedrf paper show ID` prints it beside the paper's numbers."
    )


def _describe(experiment: Experiment, settings: list[Setting], out: Path) -> dict[str, str | None]:
    """Return the state of an experiment: ready, or what it needs."""
    from fedrf.paper.outcome import Outcome
    from fedrf.paper.published import published

    states = []
    for setting in settings:
        try:
            plan = experiment.recipe(setting)
            states.append(f"ready, {len({cell.job.digest for cell in plan.cells})} jobs")
        except ValueError as error:
            states.append(str(error).partition(" (")[0])
    outcome = Outcome.load(out, experiment.name)
    return {
        "id": experiment.name,
        "title": experiment.title,
        "place": published(experiment.name).place,
        "full": states[0],
        "quick": states[1],
        "done": None if outcome is None else f"{outcome.mode}, {outcome.written}",
    }


@app.command()
def run(
    ids: Identifiers,
    quick: Quick = False,
    data_root: DataRoot = None,
    out: Out = FOLDER,
    seeds: Seeds = None,
    jobs: Jobs = None,
    address: Address = None,
    json_output: JsonOutput = False,
) -> None:
    """Run tables and figures, and print ours beside the paper's.

    Without `--quick` it is the paper's experiment: all data sets and the backbones of the paper, on GPUs. What is
    finished is not run again, also if it belongs to another table; repeat an interrupted call to continue it.

    Examples
    --------
    `fedrf paper run table6-digit-five --quick`

    `fedrf paper run all --quick`

    `fedrf paper run table4-office31 --data-root ~/data --address auto`
    """
    from rich.console import Console

    from fedrf.paper.experiments import EXPERIMENTS, find
    from fedrf.paper.rendering import print_outcome
    from fedrf.paper.reproduce import reproduce
    from fedrf.paper.setting import Setting

    setting = Setting(quick, data_root, _numbers(seeds))
    chosen = [find(name) for name in (EXPERIMENTS if "all" in ids else dict.fromkeys(ids))]
    possible = _possible(chosen, setting, skip="all" in ids)
    out.mkdir(parents=True, exist_ok=True)
    processes = jobs or len(os.sched_getaffinity(0))
    outcomes, complete = reproduce(
        possible, setting, out.resolve(), processes, address or os.environ.get("RAY_ADDRESS")
    )
    if json_output:
        print(json.dumps([json.loads((out / f"{outcome.name}.json").read_text()) for outcome in outcomes]))
    else:
        console = Console()
        for outcome in outcomes if len(outcomes) <= 3 else ():
            print_outcome(outcome, console)
        console.print(f"Tables and figures: {out / 'paper.html'}", markup=False, soft_wrap=True)
    if not complete:
        print("fedrf paper: interrupted; repeat the call to continue", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    failed = sum(len(outcome.failures) for outcome in outcomes)
    if failed:
        print(f"fedrf paper: {failed} cells have no value; the tables say why", file=sys.stderr)
        raise typer.Exit(1)


def _possible(chosen: list[Experiment], setting: Setting, skip: bool) -> list[Experiment]:
    """Return the experiments whose data are there; with `skip`, the others are named and left out."""
    possible = []
    for experiment in chosen:
        try:
            experiment.recipe(setting)
            possible.append(experiment)
        except ValueError as error:
            if not skip:
                raise ValueError(f"{experiment.name}: {error}") from None
            print(f"{experiment.name} is left out: {error}", file=sys.stderr)
    if not possible:
        raise ValueError("no experiment can be run with the data at hand")
    return possible


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        return () if text is None else tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise ValueError(f"--seeds takes whole numbers such as 0,1,2; got {text!r}") from None


@app.command()
def show(ids: Identifiers, out: Out = FOLDER, json_output: JsonOutput = False) -> None:
    """Print tables that have been run beside the paper's numbers, and how the settings differ."""
    from rich.console import Console

    from fedrf.paper.experiments import EXPERIMENTS, find
    from fedrf.paper.outcome import Outcome
    from fedrf.paper.rendering import print_outcome

    found = {name: Outcome.load(out, name) for name in (EXPERIMENTS if "all" in ids else ids) if find(name)}
    missing = [name for name, outcome in found.items() if outcome is None]
    if missing and "all" not in ids:
        raise ValueError(f"{missing[0]} has not been run in {out}; `fedrf paper run {missing[0]} --quick` does it")
    if json_output:
        print(json.dumps([json.loads((out / f"{name}.json").read_text()) for name in found if name not in missing]))
        return
    console = Console()
    for outcome in found.values():
        if outcome is not None:
            print_outcome(outcome, console)
            console.print()


app.command("table", hidden=True)(show)
