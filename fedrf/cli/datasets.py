"""`fedrf datasets`: what the key `data.name` can name."""

from __future__ import annotations

import json
from typing import Any

from fedrf.cli.options import JsonOutput, Names

OTHERS = "A class of your own: data.name=package.module:Name, imported from the Python path or the current directory."


def datasets(names: Names = None, json_output: JsonOutput = False) -> None:
    """List the data sets: what they are, whether samples are images or features, and their domains.

    Built-in data sets are listed with those of installed packages (entry points of the group `fedrf.datasets`). The key
    `data.name` also takes `package.module:Name`, a subclass of `fedrf.data.dataset.Dataset` on the Python path or in
    the current directory. `fedrf data list` shows which of their files are there.

    Examples
    --------
    `fedrf datasets --json`

    `fedrf datasets my_module:MyData` checks the class and shows it
    """
    from fedrf.cli.definitions import definitions
    from fedrf.config.registry import DATASETS
    from fedrf.data.availability import known_domains

    rows = [
        {
            "name": name,
            "about": dataset.about,
            "content": dataset.content,
            "domains": None if dataset.user_defined else list(known_domains(name)),
            "from": provider,
        }
        for name, dataset, provider in definitions(DATASETS, names or [])
    ]
    if json_output:
        print(json.dumps(rows, indent=1))
    else:
        _print_datasets(rows)


def _print_datasets(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    table = Table(box=None, pad_edge=False)
    for column in ("data.name", "what it is", "samples", "domains", "from"):
        table.add_column(column, no_wrap=column in ("data.name", "from"))
    for row in rows:
        domains = "those of your files" if row["domains"] is None else ", ".join(row["domains"])
        table.add_row(row["name"], row["about"], row["content"], domains, row["from"])
    console.print(table, f"\n{OTHERS}", sep="\n")
