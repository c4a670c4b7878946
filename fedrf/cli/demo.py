"""`make demo`: federated domain adaptation on the embedded digits; each client is a Ray actor on this machine.

Each target in turn has no labels, and the three other domains are the sources. All methods have the same extractor, and
those that train in rounds the same number of them. Target labels are used only to report accuracy.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from tempfile import mkdtemp

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fedrf.cli.exit_codes import INTERRUPTED
from fedrf.comparison.variants import reference_methods
from fedrf.experiment.display import size
from fedrf.experiment.report import write_report
from fedrf.experiment.results import RunResult
from fedrf.experiment.run import run
from fedrf.runtime.ray import RaySession

METHODS = tuple(reversed(reference_methods()))
TARGETS = ("rendered", "textured", "street")


def main() -> None:
    """Run all methods on all targets and print one table."""
    console, start = Console(), time.monotonic()
    warnings.filterwarnings("ignore", ".*private_batches")  # all clients are here
    console.print("Starting Ray and four clients ...")
    results: dict[tuple[str, str], RunResult] = {}
    with RaySession() as session:
        folder = Path(mkdtemp(prefix="fedrf-demo-"))
        for method in METHODS:
            for target in TARGETS:
                overrides = {"method": method, "data.target": target}
                result = run("digits", overrides, out=folder / f"{method}-{target}", session=session)
                if not result.finished:
                    raise SystemExit(INTERRUPTED)
                results[method, target] = result
                console.print(f"{method} → {target}: {result.target_accuracy or 0:.1%}")
    console.print("\nAccuracy on the target in %, after the last round; bytes sent in one run, both ways.")
    console.print(table(results))
    page = folder / "report.html"
    write_report([result.folder for result in results.values()], page)
    console.print(f"{time.monotonic() - start:.0f} s in all. Report: {page}")


def table(results: dict[tuple[str, str], RunResult]) -> Table:
    """Return the results, with a row for each method."""
    rows = Table("method", *(f"→ {target}" for target in TARGETS), "sent", "time", box=SIMPLE, pad_edge=False)
    for method in METHODS:
        runs = [results[method, target] for target in TARGETS]
        sent = sum(result.summary["communication"]["bytes_total"] for result in runs) / len(runs)
        seconds = sum(result.summary["seconds"]["total"] for result in runs) / len(runs)
        accuracies = (f"{100 * (result.target_accuracy or 0):.1f}" for result in runs)
        rows.add_row(method, *accuracies, size(sent), f"{seconds:.1f} s")
    return rows


if __name__ == "__main__":
    main()
