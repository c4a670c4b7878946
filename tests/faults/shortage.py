"""A run on a Ray instance of its own, with a fault: `python -m tests.faults.shortage OUT SCHEDULE...`."""

import json
import sys
from pathlib import Path

import ray

from tests.faults.schedules import FaultySession, Schedule, run_schedule, undisturbed_weights

if __name__ == "__main__":
    out, method, mode, victim, point, passing, kind = sys.argv[1:]
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    with FaultySession() as session:
        undisturbed = undisturbed_weights(Path(out))
        schedule = Schedule(method, mode, victim, point, int(passing), kind)
        outcome = run_schedule(schedule, Path(out) / "run", session, undisturbed)
    ray.shutdown()
    print(json.dumps({"has_struck": outcome.has_struck, "text": outcome.text}))
