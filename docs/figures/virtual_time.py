"""Draw accuracy over simulated time for synchronous and asynchronous rounds.

``python docs/figures/virtual_time.py [FILE]`` writes ``docs/figures/virtual_time.svg``, or the file that is named, from
the results in ``virtual_time.json``, and prints a table. ``--run`` simulates first and writes these results.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS = HERE / "virtual_time.json"
SEEDS = (0, 1, 2)
INK, MUTED = "#1f2430", "#8a93a3"
COMMON = {"method": "fedrf-plus", "adapt.when": "never", "track.evaluate_every": 5}
SYNC = {**COMMON, "federation.mode": "sync", "train.rounds": 150}
ASYNC = {**COMMON, "federation.mode": "async", "train.rounds": 300}
RULES: dict[str, tuple[str, dict[str, Any]]] = {  # colour, and what is different from the recipe
    "sync": ("#566072", {**SYNC, "federation.deadline": 1e9}),
    "sync, deadline 5 min": ("#15803d", {**SYNC, "federation.deadline": 300}),
    "async": ("#b45309", ASYNC),
    "async, FedBuff": ("#1d4ed8", {**ASYNC, "federation.aggregation": "fedbuff"}),
}
GOALS = (0.90, 0.93)


def simulate(overrides: dict[str, Any], seed: int) -> dict[str, Any]:
    """Run one federation; return its times, and hours and accuracy of each evaluation."""
    import fedrf

    with TemporaryDirectory() as folder:
        began, points = time.monotonic(), []
        result = fedrf.run("digits-simulated", overrides, seed=seed, out=Path(folder) / "run")
        for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row["client"] == "handwritten" and "accuracy" in row:
                points.append([round(row["time"] / 3600, 4), round(row["accuracy"], 4)])
    simulated = round(result.summary["seconds"]["total"], 1)
    return {"seed": seed, "real": round(time.monotonic() - began, 1), "simulated": simulated, "points": points}


def run_all() -> None:
    """Simulate all rules with all seeds and write the results."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in RULES}
    for seed in SEEDS:
        for name, (_, overrides) in RULES.items():
            results[name].append(run := simulate(overrides, seed))
            print(name, seed, run["points"][-1], f"{run['simulated'] / run['real']:.0f} x real time", flush=True)
    RESULTS.write_text(json.dumps(results) + "\n")


def hours_to(run: dict[str, Any], goal: float) -> float | None:
    """Return the simulated hours until an evaluation reaches an accuracy."""
    return next((hours for hours, accuracy in run["points"] if accuracy >= goal), None)


def print_table(results: dict[str, list[dict[str, Any]]]) -> None:
    """Print means over the seeds."""
    print(
        "| | "
        + " | ".join(f"hours to {goal:.0%}" for goal in GOALS)
        + " | best (oracle) | last | hours | simulated / real |"
    )
    print("| --- |" + " --- |" * (len(GOALS) + 4))
    for name, runs in results.items():
        reached = [[hours_to(run, goal) for run in runs] for goal in GOALS]
        hours = [f"{mean(times):.1f}" if None not in times else "not all" for times in reached]
        best = mean(max(accuracy for _, accuracy in run["points"]) for run in runs)
        last = mean(run["points"][-1][1] for run in runs)
        total, real = (sum(run[key] for run in runs) for key in ("simulated", "real"))
        figures = (*hours, f"{best:.1%}", f"{last:.1%}", f"{total / 3600 / len(runs):.1f}", f"{total / real:,.0f}")
        print(f"| {name} | " + " | ".join(figures) + " |")


def draw(results: dict[str, list[dict[str, Any]]]) -> Figure:
    """Return the figure: means over the seeds, and the range; a run keeps its last accuracy after its end."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for name, runs in results.items():
        begin = max(run["points"][0][0] for run in runs)
        hours = np.geomspace(begin, max(run["points"][-1][0] for run in runs), 200)
        curves = 100 * np.array([np.interp(hours, *zip(*run["points"], strict=True)) for run in runs])
        colour = RULES[name][0]
        axes.plot(hours, curves.mean(0), color=colour, label=name)
        axes.fill_between(hours, curves.min(0), curves.max(0), color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 2, 5, 10, 24, 48, 96], ["½ h", "1 h", "2 h", "5 h", "10 h", "1 d", "2 d", "4 d"])
    axes.minorticks_off()
    axes.set_ylim(60, 98)
    axes.set_xlabel("simulated time", fontsize=9, color=INK)
    axes.set_ylabel("accuracy on the target in %", fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    axes.grid(color=MUTED, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower right", labelcolor=INK)
    return figure


def main(file: Path) -> None:
    """Draw the figure and print the table."""
    results = json.loads(RESULTS.read_text())
    print_table(results)
    with mpl.rc_context({"svg.hashsalt": "fedrf"}):
        draw(results).savefig(file, format="svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments == ["--run"]:
        run_all()
        arguments = []
    main(Path(arguments[0]) if arguments else HERE / "virtual_time.svg")
