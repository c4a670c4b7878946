"""Every case on the simulated device: nothing is on the wrong device, little is waited for, little runs on the host."""

import json
import os
import subprocess
import sys

import pytest

from tests.devices.cases import BACKBONES, POOLED, RESUMED, RUNS, STORED, WITHOUT_FLOAT64

# How often a client may wait for its device in one round without an evaluation: for its messages, and once for figures.
MOST_SYNCS = 5
# With evaluations, and pseudo-labels.
MOST_SYNCS_WITH_SCORES = 20
SCORED = {name for name in RUNS if name.startswith("scores by")}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What was seen in each case; all run in one other process, because the device exists in a whole process."""
    output = tmp_path_factory.mktemp("devices") / "output"
    with output.open("w") as file:
        process = subprocess.run(
            [sys.executable, "-m", "tests.devices.run_cases"],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    assert process.returncode == 0, process.stderr
    return {row["case"]: row for row in map(json.loads, output.read_text().splitlines())}


def result(seen, name):
    assert "error" not in seen[name], seen[name]["error"]
    return seen[name]


@pytest.mark.parametrize("name", [*RUNS, *BACKBONES])
def test_a_run_computes_on_its_device(seen, name):
    row = result(seen, name)
    assert {place["device"] for place in row["placement"].values()} == {"sim:0"}
    assert row["on_host"] == {}
    assert row["accuracy"] is not None
    assert row["emptied"] >= len(row["placement"])


@pytest.mark.parametrize("name", [*RUNS, *BACKBONES])
def test_the_host_seldom_waits_for_the_device(seen, name):
    most = MOST_SYNCS_WITH_SCORES if name in SCORED else MOST_SYNCS
    for role, syncs in result(seen, name)["syncs"].items():
        assert len(syncs) >= 2, role
        assert max(syncs) <= most, role


@pytest.mark.parametrize("name", STORED)
def test_features_that_do_not_fit_on_the_host_are_on_the_device(seen, name):
    row = result(seen, f"little host memory: {name}")
    assert row["rows_on"] == ["sim"]
    assert row["accuracy"] == result(seen, name)["accuracy"]


@pytest.mark.parametrize("name", POOLED)
def test_domains_in_the_memories_of_host_and_device_are_pooled(seen, name):
    row = result(seen, f"filling memory: {name}")
    assert row["rows_on"] == ["cpu", "sim"]
    assert row["accuracy"] == result(seen, name)["accuracy"]


@pytest.mark.parametrize("name", WITHOUT_FLOAT64)
def test_a_device_without_double_precision_gives_the_same_accuracy(seen, name):
    """As that of Apple: sums in double precision are on the host, everything else is not."""
    row = result(seen, f"without float64: {name}")
    assert row["accuracy"] == pytest.approx(result(seen, name)["accuracy"], abs=0.05)
    assert "predict" not in row["on_host"]
    assert "features" not in row["on_host"]


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_that_fails_is_continued_on_its_device(seen, name):
    row = result(seen, name)
    assert "this step fails" in row["reason"]
    assert row["finished"]
    assert row["on_host"] == {}
    if not name.startswith("async"):
        assert row["same"]
