"""The time of a round: Ray in sync and async mode, and threads, compared with the same arithmetic in a plain loop.

Four sources and a target with random features of synthetic data; W has 0.8 or 6.4 MB. `make bench`, about five minutes
on two cores. It also measures how much a slow client slows the others, and the start-up time until the first round.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import fedrf.federation.worker
from benchmarks.rows import report
from benchmarks.synthetic import (
    ROUNDS,
    SAMPLES,
    SIZES,
    SOURCES,
    TARGET,
    SyntheticSession,
    finish,
    load_synthetic,
    make_config,
    new_fence,
)
from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.schema import Config
from fedrf.federation.channel import Channel
from fedrf.federation.client import Client
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.storage import storage_of
from fedrf.models.parts import get_part, parameters_of, set_part
from fedrf.protocol.envelope import Reply
from fedrf.runtime.base import Federation
from fedrf.runtime.local import LocalFederation
from fedrf.runtime.ray import RayFederation, RaySession
from fedrf.tca.mmd import proximal_step

WARM_UP = 10  # rounds that are not measured


def make_client(config: Config, name: str) -> Client:
    samples = load_synthetic(None, name)
    info = ClientInfo(name, SOURCES, TARGET, Path())
    samples = samples.without_labels() if name == TARGET else samples
    channel = Channel(info, lambda _: (1.0, Reply()), config.train.rounds)
    return Client(config, channel, samples, Evaluator(samples.labels), storage_of(channel))


def plain_loop(config: Config) -> float:
    """Return milliseconds per round of the same arithmetic without Ray, Lightning and messages.

    One client computes at a time, on all cores.
    """
    torch.set_num_threads(2)
    clients = {name: make_client(config, name) for name in (*SOURCES, TARGET)}
    optimizers = {
        name: torch.optim.Adam(
            [*parameters_of(client.module, "aligner"), *parameters_of(client.module, "classifier")], lr=3e-3, fused=True
        )
        for name, client in clients.items()
    }
    with torch.no_grad():
        means = {
            name: client.module.features(client.module.samples.rows[range(SAMPLES)]).mean(0)
            for name, client in clients.items()
        }
    differences = {name: means[name] - means[TARGET] for name in SOURCES}
    discrepancies = torch.stack(list(differences.values()), dim=1)
    times = []
    for number in range(1, ROUNDS + 1):
        start = time.perf_counter()
        for name in SOURCES:
            batch = clients[name].module.samples.batch(number, config.train.batch_size)
            source_step(clients[name], batch, differences[name], optimizers[name])
        with torch.no_grad():
            batch = clients[TARGET].module.samples.batch(number, config.train.batch_size)
            clients[TARGET].module.features(batch.inputs)
            average(clients, discrepancies, config.align.gamma)
        times.append(1000 * (time.perf_counter() - start))
    return median(times[WARM_UP:])


def source_step(client: Client, batch: Any, difference: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    with torch.no_grad():
        features = client.module.features(batch.inputs)
    aligned = difference @ client.module.aligner
    loss = torch.nn.functional.cross_entropy(client.module.logits(features), batch.labels, label_smoothing=0.1)
    optimizer.zero_grad()
    (loss + aligned.square().sum()).backward()
    optimizer.step()


def average(clients: dict[str, Client], discrepancies: torch.Tensor, gamma: float) -> None:
    """Set aligner and classifier of all clients to the mean of the sources, with the proximal step for the aligner."""
    for part in ("aligner", "classifier"):
        mean = torch.stack([get_part(clients[name].module, part) for name in SOURCES]).mean(0)
        if part == "aligner":
            mean = proximal_step(mean, discrepancies, gamma)
        for client in clients.values():
            set_part(client.module, part, mean)


def run_federation(federation: Federation) -> dict[str, dict[str, float]]:
    """Run to the end; return for each client its rounds, and milliseconds per round in total and in the exchange."""
    rows = finish(federation)
    results: dict[str, dict[str, float]] = {}
    for name in (*SOURCES, TARGET):
        timed = [row for row in rows if row["client"] == name and "seconds" in row]
        measured = [row for row in timed if row["round"] > WARM_UP]
        keys = ("seconds", "waited") if measured else ()
        results[name] = {key: 1000 * median(row[key] for row in measured) for key in keys} | {"rounds": len(timed)}
    return results


def median_of(results: dict[str, dict[str, float]], key: str, clients: tuple[str, ...] = SOURCES) -> float:
    return median(results[name][key] for name in clients)


def run_with_ray(session: RaySession, config: Config) -> dict[str, dict[str, float]]:
    return run_federation(RayFederation(session, config, SOURCES, TARGET, new_fence(), None))


def start_up(clients_per_actor: int) -> float:
    """Return the seconds from a new process to the first round."""
    start = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.synthetic", str(clients_per_actor)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    seconds = time.monotonic() - start
    process.wait()
    return seconds


def report_rounds(session: RaySession, size: str) -> None:
    """Report the time of a round in each mode, and its ratio to the plain loop, which is a lower bound."""
    floor = plain_loop(make_config(size))
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
    report("start-up to the first round, 6 actors", start_up(1), "s", bar="<= 15")
    report("start-up to the first round, 5 clients in 2 actors", start_up(3), "s")
    fedrf.federation.worker.load_samples = load_synthetic
    with SyntheticSession() as session:
        for size in SIZES:
            report_rounds(session, size)
        for mode in ("sync", "async"):
            report_slow_client(session, mode)


if __name__ == "__main__":
    main()
