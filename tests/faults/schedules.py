"""Faults of real Ray processes: at a point of a run, a process kills or freezes itself.

A schedule, drawn from a seed, names the method and the mode of a run, the process, the point, how often the process has
passed it before, and the signal. It is a file in the run directory, which the process renames when it strikes: a fault
happens once, also if the process is started again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import fedrf
from fedrf.config.loader import load_config
from fedrf.experiment.driver import Experiment
from fedrf.experiment.results import RunFolder
from fedrf.runtime.ray import ClientActor, RayFederation, RaySession
from tests.conftest import TINY, final_weights

ROUNDS = 6
SETTINGS = {
    **TINY,
    "train.rounds": ROUNDS,
    "adapt.steps": 4,
    "federation.aligner_interval": 2,
    "federation.checkpoint_seconds": 0,
    "federation.deadline": 8,  # ten times as long for a process that starts, on a busy machine too
    "resources.max_restarts": 20,
    "resources.gpus_per_client": 0,
    "resources.cpus_per_client": 0.5,  # two federations at a time: that of a driver in another process too
}
METHODS = ("fedrf-plus", "fedrf-oneshot")
CLIENTS = ("rendered", "textured", "street", "handwritten")
TARGET = CLIENTS[-1]
SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP}
PAUSE_SECONDS = {"blink": 3, "pause": 12}  # frozen, and continued before or after the deadline
KINDS = (*SIGNALS, *PAUSE_SECONDS)
MEMORY_PIECES = 128  # of 2^26 bytes

# Where a process can be stopped: a class, its method, whether before or after it, and how often it is passed.
CLIENT_POINTS = {
    "greeting": ("fedrf.federation.channel:Channel.greet", "before", 1),
    "before sending": ("fedrf.federation.channel:Channel.exchange", "before", ROUNDS + 1),
    "after sending": ("fedrf.federation.channel:Channel.exchange", "after", ROUNDS + 1),
    "training": ("fedrf.federation.module:FederatedModule.step", "before", ROUNDS),
    "evaluating": ("fedrf.federation.local_samples:LocalSamples.evaluate", "after", 2),
    "writing a checkpoint": ("fedrf.federation.saver:ArchiveIO.save_checkpoint", "after", ROUNDS),
    "after a checkpoint": ("fedrf.federation.channel:Channel.saved", "before", ROUNDS),
    "finishing": ("fedrf.federation.channel:Channel.finish", "before", 1),
}
TARGET_POINTS = {"adapting": ("fedrf.federation.module:FederatedModule.adaptation_step", "after", 4)}
COORDINATOR_POINTS = {
    "greeting": ("fedrf.federation.startup:Startup._agree", "before", 1),
    "aggregating": ("fedrf.federation.reception:Reception.accept", "after", 4 * ROUNDS),
    "answering": ("fedrf.federation.replies:Replies.build", "after", 4 * ROUNDS),
    "beginning a version": ("fedrf.federation.checkpoint_versions:CheckpointVersions.begin", "after", ROUNDS),
    "committing a version": ("fedrf.federation.checkpoints:CoordinatorFiles.save", "before", ROUNDS),
    "after a version": ("fedrf.federation.checkpoints:CoordinatorFiles.save", "after", ROUNDS),
}
DRIVER_POINTS = {
    "starting": ("fedrf.experiment.driver:Experiment._start_client", "after", 4),
    "polling": ("fedrf.experiment.driver:Experiment._poll", "after", 3),
    "writing figures": ("fedrf.experiment.results:RunFolder.append_rows", "after", 3),
    "writing the summary": ("fedrf.experiment.results:RunFolder.write_summary", "before", 1),
}
# The target of these methods trains nothing in the rounds, and one-shot runs have no rounds.
NOT_REACHED = {
    ("fedrf-plus", "target"): ("training",),
    ("fedrf-oneshot", "target"): ("training",),
    ("fedrf-oneshot", "source"): ("training", "evaluating"),
}


class Schedule(NamedTuple):
    """One fault of one run."""

    method: str
    mode: str
    victim: str
    point: str
    passing: int
    kind: str

    @property
    def role(self) -> str:
        """What the victim is."""
        return role_of(self.victim)


def role_of(victim: str) -> str:
    """Return what a process is."""
    if victim in ("coordinator", "driver"):
        return victim
    return "target" if victim == TARGET else "source"


def points_of(victim: str) -> dict[str, tuple[str, str, int]]:
    """Return where a process can be stopped."""
    if victim in ("coordinator", "driver"):
        return COORDINATOR_POINTS if victim == "coordinator" else DRIVER_POINTS
    return CLIENT_POINTS | (TARGET_POINTS if victim == TARGET else {})


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    rng = random.Random(seed)
    method, mode = rng.choice(METHODS), rng.choice(("sync", "async"))
    victim = rng.choice(("street", "rendered", TARGET, "coordinator", "driver"))
    points = points_of(victim)
    point = rng.choice(sorted(set(points) - set(NOT_REACHED.get((method, role_of(victim)), ()))))
    passings = points[point][2] if method == "fedrf-plus" else 1
    # While its process exists, a frozen driver of this machine is not replaced.
    kind = rng.choice([kind for kind in KINDS if (victim, kind) != ("driver", "freeze")])
    return Schedule(method, mode, victim, point, rng.randint(1, passings), kind)


class Strike:
    """Installs a fault in this process, if the schedule of a run names it; `__exit__` removes it."""

    def __init__(self, run: Path, name: str) -> None:
        self.path, self.name = Path(run) / "fault.json", name
        self.undo = lambda: None

    def __enter__(self) -> None:
        if not self.path.exists():
            return
        fault = json.loads(self.path.read_text())
        if fault["victim"] != self.name:
            return
        from importlib import import_module

        module, _, names = fault["where"].partition(":")
        class_name, _, method_name = names.partition(".")
        owner = getattr(import_module(module), class_name)
        original, passed = getattr(owner, method_name), Counter()

        def strike(this):
            mine = getattr(getattr(this, "channel", this), "info", None)
            if mine is not None and mine.name != self.name:  # another client in the same process
                return
            passed[""] += 1
            if passed[""] == fault["passing"]:
                self.path.rename(self.path.with_name("fault.done"))
                strike_with(fault["kind"])

        def patched(this, *arguments, **keywords):
            if fault["moment"] == "before":
                strike(this)
            answer = original(this, *arguments, **keywords)
            if fault["moment"] == "after":
                strike(this)
            return answer

        setattr(owner, method_name, patched)
        self.undo = lambda: setattr(owner, method_name, original)

    def __exit__(self, *_) -> None:
        self.undo()


def strike_with(kind: str) -> None:
    """End or freeze this process, for a while or for good, or use memory until Ray ends a process."""
    if kind in PAUSE_SECONDS:
        subprocess.Popen(["sh", "-c", f"sleep {PAUSE_SECONDS[kind]}; kill -CONT {os.getpid()}"], start_new_session=True)
    if kind != "memory":
        os.kill(os.getpid(), SIGNALS.get(kind, signal.SIGSTOP))
        return
    used = []
    for _ in range(MEMORY_PIECES):
        used.append(b"\1" * 2**26)
        time.sleep(0.05)
    time.sleep(10)  # Ray has seen it by then


class FaultyActor(ClientActor):
    """A client process that may stop itself."""

    def run(self, config, info, coordinator, requirements, ready):
        with Strike(info.run, info.name):
            super().run(config, info, coordinator, requirements, ready)


class FaultySession(RaySession):
    """Keeps client processes that may stop themselves."""

    actor_class = FaultyActor


class FaultyCoordinator(RayFederation.coordinator_class):
    """A coordinator that may stop itself."""

    def __init__(self, config, sources, target, files, version):
        Strike(files.run, "coordinator").__enter__()
        super().__init__(config, sources, target, files, version)


class FaultyFederation(RayFederation):
    """A federation whose coordinator may stop itself."""

    coordinator_class = FaultyCoordinator


def settings_of(schedule: Schedule) -> dict:
    return {**SETTINGS, "method": schedule.method, "federation.mode": schedule.mode} | (
        {"train.rounds": 0} if schedule.method == "fedrf-oneshot" else {}
    )


class Outcome(NamedTuple):
    """What became of a run."""

    has_struck: bool
    text: str
    seconds: float
    restarts: int


def run_schedule(schedule: Schedule, out: Path, session: RaySession, undisturbed: dict) -> Outcome:
    """Run with a fault; the result is compared with that of an undisturbed run (sync), or checked for completeness."""
    began = time.monotonic()
    out.mkdir(parents=True)
    where, moment, _ = points_of(schedule.victim)[schedule.point]
    fault = {"victim": schedule.victim, "where": where, "moment": moment}
    (out / "fault.json").write_text(json.dumps({**fault, "passing": schedule.passing, "kind": schedule.kind}))
    if schedule.victim == "driver":
        import ray

        command = [sys.executable, "-m", "tests.faults.driver", ray.get_runtime_context().gcs_address, out, *schedule]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == (-signal.SIGKILL if schedule.kind == "kill" else 0), done.stderr
        result = resume(out, session)
    else:
        config = load_config(None, settings_of(schedule))
        with RunFolder.create(config, out) as folder:
            result = Experiment(config, folder, False).run(lambda *rest: FaultyFederation(session, *rest))
    events = [json.loads(line) for line in (out / "run.log").read_text().splitlines()]
    restarts = sum(event["event"] == "client started" for event in events) // len(CLIENTS) - 1
    text = verdict(schedule, result, undisturbed)
    return Outcome((out / "fault.done").exists(), text, time.monotonic() - began, restarts)


def resume(out: Path, session: RaySession):
    """Continue a run whose driver was killed, or start it if it had not begun."""
    if (out / "config.yaml").exists():
        return fedrf.run(resume=out, session=session)
    raise AssertionError("the driver ended before the run began")


def verdict(schedule: Schedule, result, undisturbed: dict) -> str:
    """Return what became of a run: "same bits", "complete", or what is wrong."""
    if not result.finished:
        return f"not finished: {result.summary['failures']}"
    rows = RunFolder(result.folder).rows()
    trained = Counter((row["client"], row["round"]) for row in rows if "loss" in row and "step" not in row)
    if schedule.mode == "sync":
        if max(trained.values(), default=1) > 1:
            return "a round was recorded twice"
        return "same bits" if final_weights(result) == undisturbed[schedule.method] else "other bits"
    if sum(bool(row.get("final")) for row in rows if row["client"] == TARGET) != 1:
        return "the final figures were recorded more than once"
    if schedule.method == "fedrf-oneshot" and set(result.summary["measured"]["source_weights"]) != set(CLIENTS) - {
        TARGET
    }:
        return "the statistics of a source are missing"
    return "complete" if set(final_weights(result)) == set(CLIENTS) else "a client has not finished"


def undisturbed_weights(folder: Path) -> dict:
    """Return the final weights of undisturbed sync runs, by method."""
    weights = {}
    for method in METHODS:
        settings = settings_of(Schedule(method, "sync", "", "", 0, ""))
        weights[method] = final_weights(fedrf.run(None, settings, out=folder / method, local=True))
    return weights
