"""The time of a round of real training: Office-31 features, one or four sources and a target, beside a plain loop.

amazon is one source or divided into four, and webcam is the target. The features of a backbone are computed once,
before anything is measured. The plain loop is the same arithmetic in one process, one client after the
other on all cores.
"""

from __future__ import annotations

from typing import Any

from benchmarks.plain_loop import PlainLoop
from benchmarks.rows import report
from benchmarks.synthetic import finish, new_fence
from fedrf.config.loader import load_config
from fedrf.config.schema import Config
from fedrf.data.dataset import data_root
from fedrf.data.domains import clients_of, load_samples, resolve_data
from fedrf.runtime.local import LocalFederation
from fedrf.runtime.ray import RayFederation, RaySession

ROUNDS = 300
BARS = {2: "<= 1.15", 5: "<= 1.5"}  # clients


def make_config(sources: int, **keys: Any) -> Config:
    """Return the configuration with so many sources; `train__rounds=2` sets train.rounds."""
    defaults = {
        "method": "fedrf-plus",
        "data.sources": ["amazon"],
        "data.target": "webcam",
        "data.partition": "even" if sources > 1 else "none",
        "data.clients": sources,
        "model.sharing": "frozen",  # so that the features are those of the plain loop
        "federation.mode": "sync",
        "train.rounds": ROUNDS,
        "adapt.when": "never",
        "track.evaluate_every": 10**6,
        "federation.checkpoint_seconds": 10**6,
    }
    config = load_config("office31", defaults | {key.replace("__", "."): value for key, value in keys.items()})
    return config.model_copy(update={"data": resolve_data(config.data)})


def run(config: Config, session: RaySession | None) -> float:
    """Return the milliseconds of a round with Ray, or in threads without a session."""
    sources, target = clients_of(config)
    arguments: Any = (config, sources, target, new_fence(), None)
    federation = RayFederation(session, *arguments) if session else LocalFederation(*arguments)
    status = finish(federation, (*sources, target))
    return 1000 * status.round_seconds / config.train.rounds


def main() -> None:
    """Report rounds in every kind of process, and their ratios to the plain loop."""
    if data_root() is None:
        print("skipped: set FEDRF_DATA to a folder with office31")
        return
    with RaySession() as session:
        for count, bar in BARS.items():
            config = make_config(count - 1)
            loop = PlainLoop(config, *clients_of(config), load_samples)
            floor = min(loop.milliseconds() for _ in range(2))
            report(f"{count} clients: plain loop", floor, "ms")
            for mode in ("sync", "async"):
                own = run(make_config(count - 1, federation__mode=mode), session)
                report(f"{count} clients, an actor each, {mode} / plain loop", own / floor, "x", f"{own:.3g} ms", bar)
            shared = run(make_config(count - 1, resources__clients_per_actor=count), session)
            report(f"{count} clients in one actor / plain loop", shared / floor, "x", f"{shared:.3g} ms")
            threads = run(config, None)
            report(f"{count} clients, --local / plain loop", threads / floor, "x", f"{threads:.3g} ms")


if __name__ == "__main__":
    main()
