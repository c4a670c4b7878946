"""A dozen random faults; `make faults` runs hundreds."""

import pytest

from tests.faults.schedules import FaultySession, draw, run_schedule, undisturbed_weights

pytestmark = pytest.mark.ray
SEEDS = range(12)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return undisturbed_weights(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def faulty_session(ray_session):
    ray_session.stop_idle()
    with FaultySession() as session:
        yield session


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_survives_a_fault(faulty_session, tmp_path, undisturbed, seed):
    schedule = draw(seed)
    outcome = run_schedule(schedule, tmp_path / "run", faulty_session, undisturbed)
    assert outcome.has_struck, schedule
    assert outcome.text == ("same bits" if schedule.mode == "sync" else "complete"), schedule
