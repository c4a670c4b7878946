"""A driver in a process of its own, which may kill itself: `python -m tests.faults.driver ADDRESS OUT SCHEDULE...`."""

import sys
from pathlib import Path

from fedrf.config.loader import load_config
from fedrf.experiment.driver import Experiment
from fedrf.experiment.results import RunFolder
from tests.faults.schedules import FaultyFederation, FaultySession, Schedule, Strike, settings_of

if __name__ == "__main__":
    address, out, method, mode, victim, point, passing, kind = sys.argv[1:]
    config = load_config(None, settings_of(Schedule(method, mode, victim, point, int(passing), kind)))
    with Strike(Path(out), "driver"), FaultySession(address) as session, RunFolder.create(config, Path(out)) as folder:
        Experiment(config, folder, False).run(lambda *rest: FaultyFederation(session, *rest))
