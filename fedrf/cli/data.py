"""`fedrf data list` and `fedrf data check`: which data sets are there, and what is in them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fedrf.cli.options import DataRoot, JsonOutput

if TYPE_CHECKING:
    from fedrf.data.check import DataReport

app = typer.Typer(help="Show which data sets are there, and what is in them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A data set; `fedrf datasets` lists them.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="data.key=value", help="As for a run; also `seed`.", show_default=False),
]
Decode = Annotated[bool, typer.Option("--decode", help="Decode every image, to find corrupt files.")]


@app.command("list")
def list_datasets(data_root: DataRoot = None, json_output: JsonOutput = False) -> None:
    """List all data sets, their domains, which of these are below the data root, and where to get the others.

    Names of folders can be spelled differently: `Office-31`, `office_31` and `office31` are the same. With `--json`,
    each missing domain comes with the paths that were tried.

    Example: `fedrf data list --data-root ~/datasets`
    """
    from rich.console import Console

    from fedrf.cli.data_tables import print_availability
    from fedrf.data.availability import find_datasets
    from fedrf.data.dataset import data_root as find_root

    root = find_root(data_root)
    if root is not None and not root.is_dir():
        raise ValueError(f"--data-root {root}: no such folder")
    datasets = find_datasets(root)
    if json_output:
        contents = {"root": str(root) if root else None, "datasets": [asdict(dataset) for dataset in datasets]}
        print(json.dumps(contents, indent=1))
    else:
        print_availability(datasets, root, Console(highlight=False))


@app.command("check")
def check(
    name: Name,
    overrides: Overrides = None,
    data_root: DataRoot = None,
    decode: Decode = False,
    json_output: JsonOutput = False,
) -> None:
    """Load a data set and show the samples of each domain and class, and whether any are missing.

    With a `data.partition`, show the samples that each client would have in a run with the same keys and seed.
    Exit code 1 if a domain is missing or wrong, or an image is corrupt.

    Examples
    --------
    `fedrf data check office31 --data-root ~/datasets --decode`

    `fedrf data check digits data.partition=dirichlet data.clients=4 data.concentration=0.1 seed=1`

    `fedrf data check folder data.root=~/my-images data.target=new-camera`
    """
    from rich.console import Console

    from fedrf.cli.data_tables import print_report

    report = _check(name, overrides or [], data_root, decode)
    if json_output:
        print(json.dumps(report.as_json(), indent=1))
    else:
        print_report(report, Console(highlight=False))
    raise typer.Exit(0 if report.ok else 1)


def _check(name: str, overrides: list[str], data_root: str | None, decode: bool) -> DataReport:
    """Check a data set, with a progress bar on standard error while images are decoded."""
    from rich.console import Console
    from rich.progress import Progress

    from fedrf.data.check import check_dataset

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (decode and console.is_terminal)) as progress:
        return check_dataset(
            name,
            overrides,
            data_root,
            decode,
            lambda results, domain, count: progress.track(results, count, description=domain),
        )
