"""Speeds, networks and availability of simulated clients."""

import numpy as np
import pytest

from fedrf.config.schema import SimulationConfig
from fedrf.runtime.pace import Pace, slow_sources


def pace(position=0, seed=0, num_sources=4, **settings):
    return Pace(SimulationConfig(**settings), seed, position, num_sources)


def test_a_constant_client_takes_its_computing_time_latency_and_bytes():
    client = pace(seconds=3.0, latency=0.25, upload=8.0, download=80.0)
    assert client.computing(1) == 3.0
    assert client.sent(10.0, 3.0, 2_000_000) == pytest.approx(10 + 3 + 0.25 + 2)
    assert client.received(20.0, 2_000_000) == pytest.approx(20 + 0.25 + 0.2)


def test_spreads_are_those_of_lognormal_distributions():
    settings = {"seconds": 2.0, "spread": 0.5, "jitter": 0.2, "latency": 0.1, "network_spread": 0.3}
    clients = [pace(position, **settings) for position in range(2000)]
    logs = {
        "seconds": np.log([client.seconds for client in clients]),
        "latency": np.log([client.latency for client in clients]),
        "upload": np.log([client.upload for client in clients]),
        "download": np.log([client.download for client in clients]),
        "round": np.log([clients[0].computing(number) for number in range(2000)]),
    }
    means = {name: values.mean() for name, values in logs.items()}
    assert means["seconds"] == pytest.approx(np.log(2.0), abs=0.05)
    assert means["latency"] == pytest.approx(np.log(0.1), abs=0.05)
    assert means["upload"] == pytest.approx(np.log(8e-8), abs=0.05)  # 100 Mbit/s
    assert means["round"] == pytest.approx(np.log(clients[0].seconds), abs=0.05)
    spreads = {name: values.std() for name, values in logs.items()}
    expected = {"seconds": 0.5, "latency": 0.3, "upload": 0.3, "download": 0.3, "round": 0.2}
    assert spreads == pytest.approx(expected, rel=0.1)
    assert abs(np.corrcoef(logs["upload"], logs["download"])[0, 1]) < 0.1


def test_draws_depend_on_seed_client_and_round_alone():
    settings = {"spread": 1.0, "jitter": 1.0}
    assert pace(1, 5, **settings).computing(7) == pace(1, 5, **settings).computing(7)
    times = {pace(*who, **settings).computing(number) for who in [(0, 5), (1, 5), (1, 6)] for number in (7, 8)}
    assert len(times) == 6


def test_the_share_of_slow_sources_is_exact_and_the_target_is_never_slow():
    settings = {"seconds": 1.0, "slow_share": 0.25, "slow_factor": 10.0}
    slow = [position for position in range(9) if pace(position, 3, 8, **settings).seconds == 10.0]
    assert len(slow) == 2
    assert set(slow) == slow_sources(SimulationConfig(**settings), 3, 8)
    assert 8 not in slow
    assert len({tuple(sorted(slow_sources(SimulationConfig(**settings), seed, 8))) for seed in range(10)}) > 3


def test_work_goes_on_only_while_a_client_is_online():
    settings = {"latency": 0.0, "availability": 0.25, "cycle": 40.0}
    client, start, end = pace(**settings), 0.0, 0.0
    for _ in range(4000):
        start, end = end, client.sent(end, 1.0, 0)
        assert end >= start + 1.0 - 1e-9
    assert end == pytest.approx(4000 / 0.25, rel=0.15)
    whole = pace(**settings).sent(0.0, 4000.0, 0)
    assert whole == pytest.approx(end)  # however the work is divided
