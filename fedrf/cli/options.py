"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

DataRoot = Annotated[str | None, typer.Option(help="Folder of the data sets; default $FEDRF_DATA.")]
Local = Annotated[bool, typer.Option("--local", help="Use threads of this process instead of Ray actors.")]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Simulate time, in this process; the same as simulation.enabled=true.")
]
Address = Annotated[str | None, typer.Option(help="Ray cluster; default $RAY_ADDRESS, else this machine.")]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Show only these; also package.module:Name.", show_default=False),
]


def split_recipe(arguments: list[str]) -> tuple[str | None, list[str]]:
    """Return the recipe or file, if the first argument is one, and the overrides."""
    if arguments and "=" not in arguments[0]:
        return arguments[0], arguments[1:]
    return None, arguments
