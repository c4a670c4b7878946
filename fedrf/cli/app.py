"""`fedrf`: the command line, with one module for each command.

Modules of commands import what is slow to import inside their functions, so that `fedrf --help` starts quickly.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fedrf.cli import align, compare, data, datasets, doctor, methods, paper, report, run
from fedrf.cli.exit_codes import run_command

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command()(run.run)
app.command(help=compare.HELP, no_args_is_help=True)(compare.compare)
app.command()(report.report)
app.command()(methods.methods)
app.command()(datasets.datasets)
app.add_typer(data.app, name="data")
app.add_typer(paper.app, name="paper")
app.command(help=align.HELP)(align.align)
app.command()(doctor.doctor)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """Federated domain adaptation with random features."""
    if version:
        from fedrf import __version__

        print(f"fedrf {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    run_command(app)
