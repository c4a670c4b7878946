"""`fedrf paper`: the tables and figures of the paper, by name."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrf.cli.exit_codes import INTERRUPTED, RUN_FAILED
from fedrf.cli.options import DataRoot, JsonOutput

if TYPE_CHECKING:
    from fedrf.paper.plan import Experiment, Plan
    from fedrf.paper.setting import Setting

app = typer.Typer(no_args_is_help=True, help="Repeat the tables and figures of the paper, by name.")
Identifiers = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Names from `fedrf paper list`, or their beginnings; or all.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="The same recipes scaled down to two cores and to the data that is there.")
]
Out = Annotated[Path, typer.Option(help="Folder of runs, tables, figures and paper.html.", file_okay=False)]
Seeds = Annotated[str | None, typer.Option(help="Seeds, such as 0,1,2; default those of the recipe.")]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Jobs at a time on this machine.", show_default="one for each GPU, else for each core"),
]
Address = Annotated[
    str | None,
    typer.Option(help="Run jobs side by side, with clients as actors, on this Ray cluster; default $RAY_ADDRESS."),
]
FOLDER = Path("paper")


@app.command("list")
def list_(data_root: DataRoot = None, out: Out = FOLDER, json_output: JsonOutput = False) -> None:
    """Show every table and figure: where it is in the paper, whether it can be run here, and whether it has been."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fedrf.paper.experiments import EXPERIMENTS
    from fedrf.paper.setting import Setting

    settings = {quick: Setting(quick, data_root) for quick in (False, True)}
    entries = [_describe(experiment, settings, out) for experiment in EXPERIMENTS.values()]
    if json_output:
        print(json.dumps(entries, indent=1, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("in the paper", "ID", "--quick", "in full", "done"):
        table.add_column(column, no_wrap=column in ("in the paper", "ID"))
    for entry in entries:
        place = str(entry["place"]).partition(",")[0]
        states = (escape(str(entry[key] or "–")) for key in ("quick", "full", "done"))
        table.add_row(place, str(entry["id"]), *states)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "\n`fedrf paper run ID --quick` runs one, `fedrf paper show ID` prints it beside the paper's numbers."
    )


def _describe(experiment: Experiment, settings: Mapping[bool, Setting], out: Path) -> dict[str, str | None]:
    """Return the state of an experiment: ready, or what it needs."""
    from fedrf.paper.outcome import MODES, Outcome
    from fedrf.paper.published import published

    states = {}
    for quick, setting in settings.items():
        try:
            plan = experiment.recipe(setting)
            states[quick] = f"ready, stand-in: {plan.stand_in}" if plan.stand_in else "ready"
        except ValueError as error:
            states[quick] = str(error).partition(" (")[0]
    done = []
    for mode in MODES:
        try:
            if (outcome := Outcome.load(out, experiment.name, mode)) is not None:
                done.append(f"{mode}, {outcome.finished} of {outcome.jobs} jobs, {outcome.written}")
        except ValueError as error:
            done.append(str(error))
    return {
        "id": experiment.name,
        "title": experiment.title,
        "place": published(experiment.name).place,
        "full": states[False],
        "quick": states[True],
        "done": "; ".join(done) or None,
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

    from fedrf.experiment.disk import check_writable
    from fedrf.paper.rendering import print_outcome
    from fedrf.paper.reproduce import reproduce
    from fedrf.paper.runner import count_gpus
    from fedrf.paper.setting import Setting
    from fedrf.runtime.ray import check_address

    setting = Setting(quick, data_root, _numbers(seeds))
    plans = _plans(_chosen(ids), setting, skip="all" in ids)
    processes = jobs or count_gpus() or os.cpu_count() or 1
    cluster = address or os.environ.get("RAY_ADDRESS")
    if cluster:
        check_address(cluster)
    check_writable("--out", out)
    out.mkdir(parents=True, exist_ok=True)
    outcomes, complete = reproduce(plans, setting, out.resolve(), processes, cluster)
    if json_output:
        print(json.dumps([outcome.as_json() for outcome in outcomes], ensure_ascii=False))
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
        raise typer.Exit(RUN_FAILED)


def _chosen(ids: list[str]) -> list[Experiment]:
    """Return the experiments that were named, each once, in the order of the call."""
    from fedrf.paper.experiments import EXPERIMENTS, find

    named = {experiment.name: experiment for experiment in (find(name) for name in ids if name != "all")}
    return list(EXPERIMENTS.values()) if "all" in ids else list(named.values())


def _plans(chosen: list[Experiment], setting: Setting, skip: bool) -> dict[str, Plan]:
    """Return the plans of the experiments whose data are there; with `skip`, the others are named and left out."""
    plans = {}
    for experiment in chosen:
        try:
            plans[experiment.name] = experiment.recipe(setting)
        except ValueError as error:
            if not skip:
                raise ValueError(f"{experiment.name}: {error}") from None
            print(f"{experiment.name} is left out: {error}", file=sys.stderr)
    if not plans:
        raise ValueError("no experiment can be run with the data at hand")
    return plans


def _numbers(text: str | None) -> tuple[int, ...]:
    parts = () if text is None else text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"--seeds takes whole numbers, at least 0, such as 0,1,2; got {text!r}")
    return tuple(dict.fromkeys(int(part) for part in parts))


@app.command()
def show(ids: Identifiers, out: Out = FOLDER, json_output: JsonOutput = False) -> None:
    """Print tables that have been run beside the paper's numbers, and how the settings differ."""
    from rich.console import Console

    from fedrf.paper.outcome import MODES, Outcome
    from fedrf.paper.rendering import print_outcome

    found = []
    for experiment in _chosen(ids):
        outcomes = [outcome for mode in MODES if (outcome := Outcome.load(out, experiment.name, mode)) is not None]
        if not outcomes and "all" not in ids:
            name = experiment.name
            raise ValueError(f"{name} has not been run in {out}; `fedrf paper run {name} --quick` does it")
        found += outcomes
    if not found:
        raise ValueError(f"nothing has been run in {out}; `fedrf paper run all --quick` does it")
    if json_output:
        print(json.dumps([outcome.as_json() for outcome in found], ensure_ascii=False))
        return
    console = Console()
    for outcome in found:
        print_outcome(outcome, console)
        console.print()


app.command("table", hidden=True)(show)
