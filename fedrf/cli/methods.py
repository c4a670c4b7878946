"""`fedrf methods`: what the key `method` can name."""

from __future__ import annotations

import json
from typing import Any

from fedrf.cli.options import JsonOutput, Names

SYMBOLS = (
    "K: sources. G, W, C, D: values in the extractor, the aligner, the classifier and the auxiliary network. S = 2N: "
    "values in a mean embedding. m: values in an aligned sample. B: samples in a batch. P: bytes in a ciphertext. "
    "C is averaged every T rounds, W every A rounds, G every E rounds. L: classes. R: components of second moments."
)
OTHERS = "A class of your own: method=package.module:Name, imported from the Python path or the current directory."


def methods(names: Names = None, json_output: JsonOutput = False) -> None:
    """List the methods: a summary and whether they can run asynchronously; of named ones also the bytes in a round.

    Built-in methods are listed with those of installed packages (entry points of the group `fedrf.methods`). The key
    `method` also takes `package.module:Name`, a subclass of `fedrf.methods.base.Method` on the Python path or in the
    current directory.

    Examples
    --------
    `fedrf methods --json`

    `fedrf methods my_module:MyMethod` checks the class and shows what it sends in a round
    """
    from fedrf.cli.definitions import definitions, print_table
    from fedrf.config.registry import METHODS

    rows = [
        {
            "name": name,
            "summary": method.summary,
            "asynchronous": method.asynchronous,
            "bytes_per_round": method.bytes_per_round,
            "bytes_once": method.bytes_once,
            "from": provider,
        }
        for name, method, provider in definitions(METHODS, names or [])
    ]
    if json_output:
        print(json.dumps(rows, indent=1))
    else:
        formulas = [
            f"Bytes of {row['name']} in a round: {row['bytes_per_round'] or 'not given'}"
            + (f"; once in a run: {row['bytes_once']}" if row["bytes_once"] != "0" else "")
            for row in rows
        ]
        texts = [OTHERS, *formulas, SYMBOLS] if names else [OTHERS]
        print_table(("method", "summary", "async", "from"), map(_table_row, rows), *texts)


def _table_row(row: dict[str, Any]) -> tuple[str, ...]:
    return row["name"], row["summary"], "yes" if row["asynchronous"] else "no", row["from"]
