"""What a round costs: Ray in sync and async mode and threads, against the same arithmetic in one plain loop.

Four sources and a target on random features of synthetic data; W of 0.8 and of 6.4 MB. `make bench`, about five minutes
on two cores. Also: what a slow client costs the others, and the time from nothing to the first round.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

import torch

import fedrf.federation.worker
from benchmarks.synthetic import ROUNDS, SIZES, SOURCES, TARGET, SyntheticSession, settings, synthetic
from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.schema import Config
from fedrf.federation.client import Client
from fedrf.federation.client_info import ClientInfo
from fedrf.protocol.messages import Reply
from fedrf.runtime.local import LocalFederation
from fedrf.runtime.ray import RayFederation
from fedrf.tca.mmd import proximal_step

SKIPPED = 10


def floor(config: Config) -> float:
    """Milliseconds a round of the same arithmetic: no Ray, no Lightning, no messages, all cores for one client."""
    torch.set_num_threads(2)
    clients = {}
    for name in (*SOURCES, TARGET):
        samples = synthetic(None, name)
        place = ClientInfo(name, SOURCES, TARGET, Path())
        samples = samples.without_labels() if name == TARGET else samples
        clients[name] = Client(config, place, samples, lambda *_: (1.0, Reply()), Evaluator(samples.labels))
    optimizers = {
        name: torch.optim.Adam([*c.model.parts()["aligner"], *c.model.parts()["classifier"]], lr=3e-3, fused=True)
        for name, c in clients.items()
    }
    with torch.no_grad():
        means = {
            name: client.model.features(client.trunk[range(len(client.trunk))]).mean(0)
            for name, client in clients.items()
        }
    discrepancies = torch.stack([means[name] - means[TARGET] for name in SOURCES], dim=1)
    times = []
    for number in range(1, ROUNDS + 1):
        began = time.perf_counter()
        for name in SOURCES:
            client, batch = clients[name], clients[name].batch(number, config.train.batch_size)
            with torch.no_grad():
                features = client.model.features(batch.inputs)
            difference = (means[name] - means[TARGET]) @ client.model.aligner
            loss = torch.nn.functional.cross_entropy(client.model.logits(features), batch.labels, label_smoothing=0.1)
            optimizers[name].zero_grad()
            (loss + difference.square().sum()).backward()
            optimizers[name].step()
        with torch.no_grad():
            batch = clients[TARGET].batch(number, config.train.batch_size)
            clients[TARGET].model.features(batch.inputs)
            for kind in ("aligner", "classifier"):
                middle = torch.stack([clients[name].model.get_part(kind) for name in SOURCES]).mean(0)
                if kind == "aligner":
                    middle = proximal_step(middle, discrepancies, config.align.gamma)
                for client in clients.values():
                    client.model.set_part(kind, middle)
        times.append(1000 * (time.perf_counter() - began))
    return median(times[SKIPPED:])


def rounds(federation: Any) -> dict[str, dict[str, float]]:
    """Run to the end; return for each client milliseconds a round and how many of them it waited."""
    for name in (*SOURCES, TARGET):
        federation.start(name, 1, None)
    left = {*SOURCES, TARGET}
    while left:
        for ended in federation.wait(5.0):
            if ended.error:
                raise ended.error
            left.discard(ended.client)
    rows = federation.call("poll", 0)["rows"]
    federation.close()
    figures: dict[str, dict[str, float]] = {}
    for name in (*SOURCES, TARGET):
        mine = [row for row in rows if row["client"] == name and row["round"] > SKIPPED and "seconds" in row]
        figures[name] = {key: 1000 * median(row[key] for row in mine) for key in ("seconds", "waited")} if mine else {}
        figures[name]["rounds"] = sum(row["client"] == name and "seconds" in row for row in rows)
    return figures


def report(name: str, value: float, unit: str, note: str = "") -> None:
    print(f"{name:64} {value:8.3g} {unit:4} {note}", flush=True)


def start_up(per_actor: int) -> float:
    """Seconds from a new process to the first round of six actors."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.synthetic", str(per_actor)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    seconds = time.monotonic() - began
    process.wait()
    return seconds


def main() -> None:
    report("start-up to the first round, 6 actors", start_up(1), "s", "aim <= 15")
    report("start-up to the first round, 5 clients in 2 actors", start_up(3), "s")
    fedrf.federation.worker.load_samples = synthetic
    with SyntheticSession() as session:
        for size in SIZES:
            lowest = floor(settings(size))
            report(f"W {size}: plain loop in one process (the floor)", lowest, "ms")
            makers = {
                "sync, Ray": lambda config: RayFederation(session, config, SOURCES, TARGET, Path(mkdtemp()), False),
                "async, Ray": lambda config: RayFederation(session, config, SOURCES, TARGET, Path(mkdtemp()), False),
                "sync, --local": lambda config: LocalFederation(config, SOURCES, TARGET, Path(mkdtemp()), False),
            }
            for name, make in makers.items():
                figures = rounds(make(settings(size, federation__mode=name.split(",")[0])))
                period = median(figures[source]["seconds"] for source in SOURCES)
                waited = median(figures[source]["waited"] for source in SOURCES)
                note = f"{period / lowest:.2f} x the floor: {period - waited:.1f} at work, {waited:.1f} in the exchange"
                report(f"W {size}: {name}", period, "ms", note)
        for mode in ("sync", "async"):
            usual = rounds(
                RayFederation(
                    session, settings("0.8 MB", federation__mode=mode), SOURCES, TARGET, Path(mkdtemp()), False
                )
            )
            pace = median(usual[source]["seconds"] for source in SOURCES)
            held = settings("0.8 MB", federation__mode=mode, federation__delays={"d": 5 * pace / 1000})
            slow = rounds(RayFederation(session, held, SOURCES, TARGET, Path(mkdtemp()), False))
            fast = median(slow[source]["seconds"] for source in SOURCES[:3])
            note = f"{pace:.1f} to {fast:.1f} ms; the slow one did {slow['d']['rounds']:.0f} of {ROUNDS} rounds"
            report(f"{mode}: one client held up by 5 rounds slows the others", fast / pace, "x", note)


if __name__ == "__main__":
    main()
