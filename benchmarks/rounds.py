"""The time of a round: Ray in sync and async mode, and threads, compared with the same arithmetic in a plain loop.

Four sources and a target with random features of synthetic data; W has 0.8 or 6.4 MB and is sent in every round.
Also how much a slow client slows the others.
"""

from __future__ import annotations

from statistics import median

import fedrf.federation.worker
from benchmarks.plain_loop import WARM_UP, PlainLoop
from benchmarks.rows import report
from benchmarks.synthetic import (
    CLIENTS,
    ROUNDS,
    SIZES,
    SOURCES,
    TARGET,
    SyntheticSession,
    finish,
    load_synthetic,
    make_config,
    new_fence,
)
from fedrf.config.schema import Config
from fedrf.runtime.base import Federation
from fedrf.runtime.local import LocalFederation
from fedrf.runtime.ray import RayFederation, RaySession


def run_federation(federation: Federation) -> dict[str, dict[str, float]]:
    """Run to the end; return for each client its rounds, and milliseconds per round in total and in the exchange."""
    rows = finish(federation).rows
    results: dict[str, dict[str, float]] = {}
    for name in CLIENTS:
        timed = [row for row in rows if row["client"] == name and "seconds" in row]
        measured = [row for row in timed if row["round"] > WARM_UP]
        keys = ("seconds", "waited") if measured else ()
        results[name] = {key: 1000 * median(row[key] for row in measured) for key in keys} | {"rounds": len(timed)}
    return results


def median_of(results: dict[str, dict[str, float]], key: str, clients: tuple[str, ...] = SOURCES) -> float:
    return median(results[name][key] for name in clients)


def run_with_ray(session: RaySession, config: Config) -> dict[str, dict[str, float]]:
    return run_federation(RayFederation(session, config, SOURCES, TARGET, new_fence(), None))


def report_rounds(session: RaySession, size: str) -> None:
    """Report the time of a round in each mode, and its ratio to the plain loop, which is a lower bound."""
    floor = PlainLoop(make_config(size), SOURCES, TARGET, load_synthetic).milliseconds()
    report(f"W {size}: plain loop in one process (the floor)", floor, "ms")
    sync, asynchronous = (make_config(size, federation__mode=mode) for mode in ("sync", "async"))
    runs = {
        "sync, Ray": lambda: run_with_ray(session, sync),
        "async, Ray": lambda: run_with_ray(session, asynchronous),
        "sync, --local": lambda: run_federation(LocalFederation(sync, SOURCES, TARGET, new_fence(), None)),
    }
    for name, run in runs.items():
        results = run()
        period, exchange = median_of(results, "seconds"), median_of(results, "waited")
        note = f"{period / floor:.2f} x the floor: {period - exchange:.1f} at work, {exchange:.1f} in the exchange"
        report(f"W {size}: {name}", period, "ms", note)


def report_slow_client(session: RaySession, mode: str) -> None:
    """Report how much the other sources slow down if one is delayed by the time of five rounds."""
    usual = median_of(run_with_ray(session, make_config("0.8 MB", federation__mode=mode)), "seconds")
    delays = {"d": 5 * usual / 1000}
    results = run_with_ray(session, make_config("0.8 MB", federation__mode=mode, federation__delays=delays))
    others = median_of(results, "seconds", SOURCES[:3])
    note = f"{usual:.1f} to {others:.1f} ms; the slow one did {results['d']['rounds']:.0f} of {ROUNDS} rounds"
    report(f"{mode}: one client held up by 5 rounds slows the others", others / usual, "x", note)


def main() -> None:
    fedrf.federation.worker.load_samples = load_synthetic
    with SyntheticSession() as session:
        for size in SIZES:
            report_rounds(session, size)
        for mode in ("sync", "async"):
            report_slow_client(session, mode)


if __name__ == "__main__":
    main()
