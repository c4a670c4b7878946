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
    from fedrf.cli.definitions import definitions, print_table
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
        columns = ("data.name", "what it is", "samples", "domains", "from")
        print_table(columns, map(_table_row, rows), OTHERS)


def _table_row(row: dict[str, Any]) -> tuple[str, ...]:
    domains = "those of your files" if row["domains"] is None else ", ".join(row["domains"])
    return row["name"], row["about"], row["content"], domains, row["from"]
