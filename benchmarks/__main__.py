"""`make bench`: runs all benchmarks, or those that are named: ``python -m benchmarks rftca rounds``.

Writes ``benchmarks/results.json`` and the tables of ``docs/benchmarks.md``, which stand between the comments
``<!-- NAME -->`` and ``<!-- end -->``, and says what is slower than in the last committed results. Results of
benchmarks that are not run stay as they are. The exit code is 1 if a benchmark fails.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from traceback import print_exc
from typing import Any

import joblib
import psutil

from benchmarks.rows import Row, as_table, collect, slower
from fedrf.experiment.environment import environment

BENCHMARKS = (
    "start_up",
    "round_profile",
    "round_trip",
    "training",
    "rounds",
    "many_clients",
    "rftca",
    "sweep",
    "backbones",
    "gpu",
)
ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks/results.json", ROOT / "docs/benchmarks.md"
FACTOR = 1.2  # that is worth a line


def machine() -> dict[str, Any]:
    """Return the processor, its cores and the memory of this machine."""
    cpu_info = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*: (.*)$", cpu_info.read_text(), re.MULTILINE) if cpu_info.exists() else []
    memory = round(psutil.virtual_memory().total / 1e9, 1)
    return {"cpu": models[0] if models else "unknown", "cores": int(joblib.cpu_count()), "memory_gb": memory}


def measure(name: str) -> list[Row] | None:
    """Run one benchmark in a process of its own; None if it fails."""
    print(f"\n{name}", flush=True)
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        try:
            return process.submit(collect, name).result()
        except Exception:
            print_exc()
            return None


def committed() -> dict[str, Any]:
    """Return the results of the last commit; none if there are none."""
    command = ["git", "-C", str(ROOT), "show", f"HEAD:{RESULTS.relative_to(ROOT).as_posix()}"]
    shown = subprocess.run(command, capture_output=True, text=True)
    results: dict[str, Any] = json.loads(shown.stdout) if shown.returncode == 0 else {}
    return results


def with_tables(page: str, results: dict[str, Any]) -> str:
    """Return a page whose tables, each between two comments, are replaced by those of these results."""
    for name, result in results["benchmarks"].items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        pattern = re.compile(re.escape(begin) + f"(?:(?!{end}).)*" + end, re.DOTALL)
        rows = as_table(result["rows"]) if result["rows"] else "Nothing can be measured on this machine."
        table = f"{begin}{result['date'][:10]}, {result['machine']['cores']} cores:\n\n{rows}\n{end}"
        page = pattern.sub(lambda _, table=table: table, page)
    return page


def main(names: list[str]) -> int:
    """Run benchmarks, write their results, and compare; return the exit code."""
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        print(f"unknown benchmark {unknown[0]}; allowed: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"benchmarks": {}}
    measured = {name: measure(name) for name in names or BENCHMARKS}
    made = {key: value for key, value in environment().items() if key not in ("host", "command")}
    for name, rows in measured.items():
        if rows is not None:
            results["benchmarks"][name] = {**made, "machine": machine(), "rows": [row.as_json() for row in rows]}
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), results))
    earlier = committed().get("benchmarks", {})
    for name in earlier.keys() & {name for name, rows in measured.items() if rows is not None}:
        for line in slower(earlier[name]["rows"], results["benchmarks"][name]["rows"], FACTOR):
            print(f"slower than in the last commit: {name}: {line}")
    return int(None in measured.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
