"""Federations in simulated time: the times of events, computed by hand, and the same results from the same seed."""

import pytest

import fedrf
from fedrf.config.loader import load_config
from fedrf.errors import RunFailedError
from fedrf.experiment import driver
from fedrf.experiment.results import RunFolder
from fedrf.federation import worker
from tests.conftest import SYNC, TINY, final_weights

TIMES = ("seconds", "waited", "time")
# Two sources, one of which is ten times slower; bytes take no time worth mentioning.
CONSTANT = {
    "data.sources": ["rendered", "street"],
    "simulation.enabled": True,
    "simulation.seconds": 2.0,
    "simulation.slow_share": 0.5,
    "simulation.latency": 0.5,
    "simulation.upload": 1e9,
    "simulation.download": 1e9,
}
VARIED = {
    "simulation.enabled": True,
    "simulation.spread": 0.7,
    "simulation.jitter": 0.3,
    "simulation.network_spread": 0.5,
    "simulation.availability": 0.7,
    "simulation.cycle": 10.0,
}


def rows_of(result):
    return RunFolder(result.folder).rows()


def times_of(rows, client, key="time"):
    """Return a figure of a client's rounds, by round."""
    return {row["round"]: row[key] for row in rows if row["client"] == client and "seconds" in row}


def by_speed(rows):
    """Return the two sources of `CONSTANT`, the fast one first."""
    return sorted(("rendered", "street"), key=lambda name: times_of(rows, name, "seconds")[1] - waiting(rows, name))


def waiting(rows, name):
    return times_of(rows, name, "waited")[1]


def close(values):
    return pytest.approx(values, abs=1e-3)


def every_round(seconds):
    return close(dict.fromkeys(range(1, 7), seconds))


def test_sync_rounds_take_as_long_as_the_slowest_client(tmp_path):
    """All greet at 0.5 and are answered at 1. A round is 20 s at the slow source, and half a second each way."""
    result = fedrf.run("digits", {**SYNC, **CONSTANT}, out=tmp_path / "run")
    rows = rows_of(result)
    fast, slow = by_speed(rows)
    for name in (fast, slow, "handwritten"):
        assert times_of(rows, name) == close({number: 1 + 21 * number for number in range(1, 7)})
        assert times_of(rows, name, "seconds") == every_round(21)
    assert times_of(rows, slow, "waited") == every_round(1)
    assert times_of(rows, fast, "waited") == every_round(19)
    # Then one exchange without computing, 4 steps of adaptation of 2 s each, and the call that says that it is over.
    assert result.summary["seconds"]["total"] == close(1 + 6 * 21 + 1 + 4 * 2 + 1)
    # From the last greeting, at 0.5, to the last exchange.
    assert result.summary["seconds"]["per_round"] == close((1 + 6 * 21 + 0.5 - 0.5) / 6)


def test_async_clients_have_their_own_pace(tmp_path):
    """A round is 3 s at the fast source and at the target, which does not wait for the slow one, with 21 s."""
    rows = rows_of(fedrf.run("digits", {**TINY, **CONSTANT}, out=tmp_path / "run"))
    fast, slow = by_speed(rows)
    for name in (fast, "handwritten"):
        assert times_of(rows, name) == close({number: 1 + 3 * number for number in range(1, 7)})
        assert times_of(rows, name, "waited") == every_round(1)
    assert times_of(rows, slow) == close({1: 22})  # answered after the end of the target, so it skips the other rounds


def test_sync_rounds_close_without_a_client_after_the_deadline(tmp_path):
    """Round 1: calls arrive at 3.5, the round closes 5 s later. Round 2 does not expect the slow source."""
    rows = rows_of(fedrf.run("digits", {**SYNC, **CONSTANT, "federation.deadline": 5.0}, out=tmp_path / "run"))
    fast, slow = by_speed(rows)
    assert [times_of(rows, fast)[number] for number in (1, 2, 3)] == close([9, 12, 15])
    assert set(times_of(rows, slow)) < set(times_of(rows, fast))


def test_delays_pass_in_simulated_time(tmp_path):
    delays = {"federation.delays": {"handwritten": 1e6}}
    result = fedrf.run("digits", {**SYNC, **CONSTANT, **delays, "federation.deadline": 1e9}, out=tmp_path / "run")
    assert times_of(rows_of(result), "handwritten")[6] == close(1 + 6 * 1000003)


@pytest.mark.parametrize("aggregation", ["mean", "fedbuff"])
def test_async_runs_have_the_same_bits_and_times_for_the_same_seed(tmp_path, aggregation, monkeypatch):
    config = {**TINY, **VARIED, "federation.aggregation": aggregation}
    first = fedrf.run("digits", config, out=tmp_path / "first")
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.001)  # the driver looks at other moments, and all save checkpoints
    again = fedrf.run("digits", {**config, "federation.checkpoint_seconds": 0}, out=tmp_path / "again")
    other = fedrf.run("digits", config, out=tmp_path / "other", seed=1)
    assert (tmp_path / "first/metrics.jsonl").read_bytes() == (tmp_path / "again/metrics.jsonl").read_bytes()
    assert final_weights(first) == final_weights(again)
    assert first.summary["seconds"] == again.summary["seconds"]
    assert first.summary["determinism"] == "same seed, same bits"
    assert times_of(rows_of(other), "handwritten") != times_of(rows_of(first), "handwritten")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    return fedrf.run("digits", {**SYNC, **VARIED}, out=tmp_path_factory.mktemp("simulated") / "run")


def test_sync_runs_have_the_same_results_as_with_threads(tmp_path, simulated):
    def figures(result):
        rows = [{key: row[key] for key in row if key not in TIMES} for row in rows_of(result)]
        return sorted(rows, key=lambda row: (row["client"], row["round"], row.get("step", 0), row.get("final", 0)))

    threads = fedrf.run("digits", SYNC, out=tmp_path / "run", local=True)
    assert final_weights(simulated) == final_weights(threads)
    assert figures(simulated) == figures(threads)
    assert len(final_weights(threads)) == 4


def test_an_interrupted_sync_run_continues_with_the_same_bits(tmp_path, monkeypatch, simulated):
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.001)
    config = {**SYNC, **VARIED}
    stopped = fedrf.run("digits", config, out=tmp_path / "run", observe=lambda rows: any(row["round"] for row in rows))
    assert not stopped.finished
    resumed = fedrf.run(resume=tmp_path / "run")
    assert resumed.finished
    assert final_weights(resumed) == final_weights(simulated)
    times = list(times_of(rows_of(resumed), "street").values())
    assert times == sorted(times)
    assert times[-1] > times_of(rows_of(simulated), "street")[6] - 1e-6  # not later if it was offline meanwhile


def test_a_client_that_fails_ends_the_run_with_its_reason(tmp_path, monkeypatch):
    run_over = worker.run_over

    def fail(config, channel, **shares):
        if channel.info.name == "street":
            raise RuntimeError("no samples today")
        run_over(config, channel, **shares)

    monkeypatch.setattr(worker, "run_over", fail)
    with pytest.raises(RunFailedError, match="street failed: RuntimeError: no samples today"):
        fedrf.run("digits", {**TINY, **CONSTANT}, out=tmp_path / "run")


def test_a_simulation_needs_no_cluster(tmp_path):
    with pytest.raises(ValueError, match=r"simulation\.enabled=true runs in one process: --address"):
        fedrf.run("digits", {**TINY, **CONSTANT}, out=tmp_path / "run", address="auto")


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("simulation.availability=0", "simulation.availability=0: Input should be greater than 0"),
        ("simulation.availability=1.5", "simulation.availability=1.5: Input should be less than or equal to 1"),
        ("simulation.slow_factor=0.5", "simulation.slow_factor=0.5: Input should be greater than or equal to 1"),
        ("simulation.upload=0", "simulation.upload=0: Input should be greater than 0"),
        ("simulation.latency=-1", "simulation.latency=-1: Input should be greater than or equal to 0"),
        ("simulation.speed=1", "simulation.speed=1: unknown key; allowed: enabled, seconds, spread"),
    ],
)
def test_bad_values_are_named_in_one_line(override, complaint):
    with pytest.raises(ValueError, match=r"^simulation") as caught:
        load_config(None, [override])
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


def test_only_simulated_runs_have_another_digest():
    assert load_config(None, ["simulation.seconds=5"]).digest == load_config().digest
    assert load_config(None, ["simulation.enabled=true"]).digest != load_config().digest
