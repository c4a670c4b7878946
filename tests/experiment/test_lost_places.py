"""Clients whose processes neither run nor end, as on a cluster that has no room for them any more."""

from concurrent.futures import Future
from functools import partial

import pytest

from fedrf.config.loader import load_config
from fedrf.errors import RunFailedError
from fedrf.experiment.driver import Experiment
from fedrf.experiment.results import RunFolder
from fedrf.runtime.local import LocalFederation
from tests.conftest import TINY, final_weights

SETTINGS = {**TINY, "federation.deadline": 0.3, "federation.mode": "async"}


class Unplaced(LocalFederation):
    """A federation whose client `street` gets no place, but in the last of some attempts."""

    def __init__(self, attempts, *arguments):
        attempts.append(1)
        if len(attempts) > 3:
            raise ValueError("4 clients do not fit on no nodes")
        super().__init__(*arguments)
        self.attempts, self.waiting = attempts, Future()

    def start(self, name, attempt, checkpoint):
        if name == "street" and len(self.attempts) != 2:
            self._running[self.waiting] = name
        else:
            super().start(name, attempt, checkpoint)

    def end(self, name):
        return name == "street"

    def close(self):
        if self.waiting.cancel():
            self.waiting.set_running_or_notify_cancel()  # only now it counts as done
        super().close()


def run(folder, attempts):
    config = load_config(None, SETTINGS)
    with RunFolder.create(config, folder) as own:
        return Experiment(config, own, False).run(partial(Unplaced, attempts))


def test_all_clients_are_placed_anew(tmp_path):
    result = run(tmp_path / "run", [])
    assert result.finished
    assert len(final_weights(result)) == 4
    assert any("neither runs nor ends" in text for text in result.summary["failures"])


def test_a_cluster_that_has_lost_too_much_is_a_failed_run(tmp_path):
    with pytest.raises(RunFailedError, match="cannot be restarted: 4 clients do not fit on no nodes; continue with"):
        run(tmp_path / "run", [1, 1])
