"""Signs of life of clients, with a clock that the test sets."""

import pytest

from fedrf.federation import liveness
from fedrf.federation.liveness import Liveness, SupersededError, pause_between_beats


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(liveness.time, "monotonic", lambda: now[0])

    def wait(seconds, *heard):
        """Let time pass in small steps; the clients in `heard` show signs of life."""
        alive, names = heard if heard else (None, ())
        for _ in range(round(seconds / 0.5)):
            now[0] += 0.5
            for name in names:
                alive.hear(name, alive.attempts[name])
            if alive:
                alive.silent()

    wait.now = now
    return wait


def test_a_client_is_silent_after_the_deadline_and_one_that_starts_after_ten_times_as_long(clock):
    alive = Liveness("ab", 10)
    alive.admit("a", 0)
    alive.hear("a", 0)
    clock(10.5, alive, ())
    assert alive.silent() == {"a": 10.5}
    clock(90, alive, "a")
    assert list(alive.silent()) == ["b"]


def test_signs_of_life_end_the_silence(clock):
    alive = Liveness("a", 10)
    clock(60, alive, "a")
    assert alive.silent() == {}


def test_time_in_which_the_coordinator_was_frozen_does_not_count(clock):
    alive = Liveness("a", 10)
    alive.admit("a", 0)
    alive.hear("a", 0)
    clock.now[0] += 3600
    assert alive.silent() == {}


def test_only_the_current_attempt_is_heard(clock):
    alive = Liveness("a", 10)
    with pytest.raises(SupersededError):
        alive.hear("a", 0)  # before the driver has started one
    alive.admit("a", 3)
    alive.hear("a", 3)
    for attempt in (2, 4):
        with pytest.raises(SupersededError):
            alive.hear("a", attempt)
    alive.exclude("a")
    for attempt in (-1, 0, 3):
        with pytest.raises(SupersededError):
            alive.hear("a", attempt)
    alive.admit("a", 4)
    alive.hear("a", 4)


def test_a_client_that_comes_back_from_silence_is_not_late_at_once(clock):
    """Its network was cut for a while: what it has sent or will send must not be left out of the round."""
    alive = Liveness("ab", 10)
    clock(10, alive, "ab")
    assert alive.is_late("a")  # alive, and the others have waited for the whole deadline
    clock(6, alive, "b")
    assert not alive.is_late("a")  # silent: that is for the driver
    clock(9, alive, "ab")
    assert not alive.is_late("a")
    clock(2, alive, "ab")
    assert alive.is_late("a")


def test_pauses_between_signs_of_life():
    assert pause_between_beats(120) == 5
    assert pause_between_beats(2) == 0.2
