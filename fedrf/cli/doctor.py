"""`fedrf doctor`: what this machine or cluster can run, what is missing, and what to do about it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fedrf.cli.options import DataRoot, JsonOutput

if TYPE_CHECKING:
    from rich.console import Console

    from fedrf.cli.doctor_check import Check

Address = Annotated[str | None, typer.Option(help="Ray cluster to check; default $RAY_ADDRESS.")]
MARKS = {"ok": "[green]ok[/]", "missing": "[yellow]missing[/]", "problem": "[red]problem[/]"}


def doctor(data_root: DataRoot = None, address: Address = None, json_output: JsonOutput = False) -> None:
    """Show what this machine or cluster can run, what is missing, and what to do about it.

    Nothing is started, downloaded or changed. On a Ray cluster a small task runs on every node that can hold
    clients: a matrix product, an exchange with this node, a checkpoint in the working folder, and a federation of two
    rounds, on a GPU if Ray sees one. Each node gets a verdict. Exit code 1 if fedrf cannot run because of a problem.

    Example: `fedrf doctor --data-root ~/datasets --address 10.0.0.1:6379`
    """
    from rich.console import Console

    from fedrf.cli.doctor_checks import can_run, run_checks

    checks = run_checks(data_root, address)
    if json_output:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        print_checks(checks, Console())
    raise typer.Exit(0 if can_run(checks) else 1)


def print_checks(checks: list[Check], console: Console) -> None:
    """Print the checks as a table."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("", "status", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for check in checks:
        table.add_row(check.name, MARKS[check.status], escape(check.found), escape(check.advice))
    console.print(table)
