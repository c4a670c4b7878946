"""A long run of a tiny model with kills: `python -m tests.faults.soak [ROUNDS]`, 20,000 by default.

Processes are killed in the first quarter. After it, the resident memory and the open files of every process and the use
of Ray's object store must stay within 5 %: the mean of the last quarter is compared with that of the second.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

import psutil
import ray

from fedrf.config.loader import load_config
from fedrf.experiment.driver import Experiment
from fedrf.experiment.results import RunFolder
from fedrf.runtime.ray import RayFederation, RaySession
from tests.conftest import TINY

MAX_DRIFT = 0.05
KILLS = 4
SAMPLES = 200


class Observed(RayFederation):
    """Samples the processes of a run, and kills some of them in its first quarter."""

    soak: "Soak"

    def call(self, name, *arguments):
        answer = super().call(name, *arguments)
        if name == "poll":
            self.soak.observe(self, min(answer.rounds.values()))
        return answer


class Soak:
    """What is measured of a run."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.random = rounds, random.Random(0)
        self.kills = sorted(self.random.sample(range(rounds // 50, rounds // 4), KILLS))
        self.samples: list[tuple[int, dict[str, float]]] = []
        self.next, self.began = 0, time.monotonic()

    def observe(self, federation: Observed, number: int) -> None:
        processes = {name: place["pid"] for name, place in federation.where().items()} | {"driver": os.getpid()}
        if self.kills and number >= self.kills[0]:
            self.kills.pop(0)
            name = self.random.choice(sorted(set(processes) - {"driver"}))
            print(f"round {number}: {name} is killed", flush=True)
            os.kill(processes[name], signal.SIGKILL)
            return
        if number < self.next:
            return
        self.next = number + self.rounds // SAMPLES
        sample = {}
        for name, pid in processes.items():
            try:
                process = psutil.Process(pid)
                sample |= {f"{name}, MB": process.memory_info().rss / 1e6, f"{name}, files": process.num_fds()}
            except psutil.Error:
                return
        store = ray.cluster_resources()["object_store_memory"] - ray.available_resources().get("object_store_memory", 0)
        self.samples.append((number, sample | {"object store, MB": store / 1e6}))

    def report(self) -> bool:
        """Print the drift of everything that was measured; tell whether all of it is small."""
        quarters = [[s for n, s in self.samples if q <= 4 * n / self.rounds < q + 1] for q in (1, 3)]
        early, late = ({key: mean(s[key] for s in part) for key in part[0]} for part in quarters)
        drifts = {key: late[key] / early[key] - 1 if early[key] else float(late[key] > 0) for key in early}
        for key, drift in drifts.items():
            print(f"{key:28} {early[key]:10.1f} {late[key]:10.1f} {drift:+8.1%}", flush=True)
        return all(drift < MAX_DRIFT for drift in drifts.values())


def main(rounds: int) -> int:
    """Run and report; return 0 if nothing grows."""
    settings = {
        **TINY,
        "federation.mode": "sync",
        "data.samples": 60,
        "data.sources": ["rendered", "textured"],
        "train.rounds": rounds,
        "track.evaluate_every": 1000,
        "resources.max_restarts": 2 * KILLS,
        "resources.gpus_per_client": 0,
        "resources.cpus_per_client": 0.5,
    }
    config, soak = load_config(None, settings), Soak(rounds)
    Observed.soak = soak
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        with RaySession() as session, RunFolder.create(config, folder / "run") as owned:
            result = Experiment(config, owned, False).run(lambda *rest: Observed(session, *rest))
        minutes = (time.monotonic() - soak.began) / 60
        print(f"{rounds} rounds, {KILLS} kills, {minutes:.0f} minutes: {result.summary['status']}")
        return 0 if soak.report() and result.finished else 1
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
