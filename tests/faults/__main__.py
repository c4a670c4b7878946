"""Run many random faults and write the tables of docs/reliability.md: `python -m tests.faults [COUNT] [FIRST_SEED]`.

The first table is of random faults of processes, 200 by default; with 0 it stays as it is. The second is of the tests
of hosts, disks, memory and messages.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

import ray
from rich.console import Console

from tests.faults.schedules import FaultySession, draw, run_schedule, undisturbed_weights

PAGE = Path("docs/reliability.md")
GOOD = ("same bits", "complete")
KINDS = {"kill": "killed", "freeze": "frozen", "blink": "frozen for 3 s", "pause": "for 12 s"}
FUZZED_CALLS = "10000"


def main(count: int, first: int) -> int:
    """Run the schedules of `count` seeds; return how many ended in another way than they should."""
    console, outcomes = Console(highlight=False), defaultdict(list)
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    ray.init(address="local", num_cpus=8, num_gpus=5, include_dashboard=False, log_to_driver=False)
    try:
        undisturbed = undisturbed_weights(folder)
        with FaultySession() as session:
            for seed in range(first, first + count):
                schedule = draw(seed)
                try:
                    outcome = run_schedule(schedule, folder / str(seed), session, undisturbed)
                except Exception as error:
                    console.print(f"{seed}: {schedule} failed: {error!r}", markup=False)
                    outcomes[schedule.role, schedule.point].append((schedule, f"error: {error!r}"))
                    continue
                finally:
                    if seed > first:
                        shutil.rmtree(folder / str(seed - 1), ignore_errors=True)
                text = outcome.text if outcome.has_struck else f"{outcome.text}, not reached"
                outcomes[schedule.role, schedule.point].append((schedule, text))
                console.print(f"{seed}: {' '.join(map(str, schedule))}: {text}, {outcome.seconds:.0f} s", markup=False)
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    report(render(outcomes, count), "faults")
    return sum(text.split(",")[0] not in GOOD for results in outcomes.values() for _, text in results)


def run_other_faults() -> int:
    """Run the other tests of this folder and write their table; return how many failed."""
    results = run_tests()
    report(render_tests(results), "tests")
    return sum(counts["failure"] + counts["error"] for counts in results.values())


def run_tests() -> dict[str, Counter]:
    """Return how often each of these tests ended in which way, by its name in words."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.xml"
        command = ["pytest", "tests/faults", "--ignore=tests/faults/test_schedules.py", f"--junitxml={file}"]
        subprocess.run([sys.executable, "-m", *command], env={**os.environ, "FEDRF_FAULTS": FUZZED_CALLS}, check=False)
        results = defaultdict(Counter)
        for case in ElementTree.parse(file).iter("testcase"):
            name = case.get("name").partition("[")[0].removeprefix("test_").replace("_", " ")
            topic = case.get("classname").rpartition("test_")[2]
            ends = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            results[f"{topic} | {name}"][ends[0] if ends else "passed"] += 1
    return results


def render_tests(results: dict[str, Counter]) -> str:
    """Return the results of the tests as Markdown."""
    lines = [
        f"Commit {commit()}.",
        "",
        "| about | test | cases that hold | that do not | skipped |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, counts in sorted(results.items()):
        bad = counts["failure"] + counts["error"]
        lines.append(f"| {name} | {counts['passed']} | {bad} | {counts['skipped']} |")
    return "\n".join(lines)


def render(outcomes, count: int) -> str:
    """Return the table as Markdown."""
    lines = [
        f"{count} random faults, commit {commit()}. Numbers are runs; those whose fault was not reached are not "
        "counted.",
        "",
        f"| process | point | {' | '.join(KINDS.values())} | sync: same bits | async: complete | other |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (role, point), results in sorted(outcomes.items()):
        reached = [(schedule, text) for schedule, text in results if not text.endswith("not reached")]
        kinds = [sum(schedule.kind == kind for schedule, _ in reached) for kind in KINDS]
        verdicts = [sum(text == good for _, text in reached) for good in GOOD]
        others = sorted({text for _, text in reached if text not in GOOD})
        lines.append(f"| {role} | {point} | {' | '.join(map(str, (*kinds, *verdicts)))} | {'; '.join(others)} |")
    return "\n".join(lines)


def commit() -> str:
    """Return the commit that is checked out."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def report(table: str, name: str) -> None:
    """Print a table and replace it in the page."""
    Console(highlight=False).print(table, markup=False)
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
    replaced = re.sub(pattern, lambda found: f"{found[1]}{table}\n{found[2]}", PAGE.read_text(), flags=re.DOTALL)
    PAGE.write_text(replaced)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    count, first = numbers + [200, 0][len(numbers) :]
    failed = (main(count, first) if count else 0) + run_other_faults()
    sys.exit(min(1, failed))
