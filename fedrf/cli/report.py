"""`fedrf report`: one page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page about one or several runs.

    Runs that have not ended are left out, with a warning. Run directories of earlier versions of fedrf can be reported
    too.

    Example: `fedrf report runs/* --out report.html`
    """
    from fedrf.experiment.report import write_report

    write_report(runs, out)
    print(f"Written to {out}")
