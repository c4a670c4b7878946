"""The event loop with simulated time."""

import asyncio

import pytest

from fedrf.runtime.virtual_time import StuckError, VirtualTimeLoop


@pytest.fixture
def loop():
    loop = VirtualTimeLoop()
    yield loop
    loop.close()


def test_timers_of_days_fire_in_order_at_their_simulated_times(loop):
    seen = []

    async def tick(name, *pauses):
        for pause in pauses:
            await asyncio.sleep(pause)
            seen.append((name, loop.time()))

    async def main():
        await asyncio.gather(tick("day", 86400.0), tick("hours", 7200.0, 43200.0, 43200.0))

    loop.run_until_complete(main())
    assert seen == [("hours", 7200.0), ("hours", 50400.0), ("day", 86400.0), ("hours", 93600.0)]


def test_events_of_the_same_moment_run_by_their_order_and_then_as_they_were_added(loop):
    seen = []
    for when, order, name in [(2.0, 0, "e"), (1.0, 2, "c"), (1.0, 1, "a"), (1.0, 2, "d"), (1.0, 1, "b")]:
        loop.at(when, order, lambda name=name: seen.append(name))
    loop.run_until_complete(asyncio.sleep(3.0))
    assert "".join(seen) == "abcde"


def test_an_action_may_add_another_one_for_now(loop):
    seen = []
    loop.at(1.0, 1, lambda: loop.at(1.0, 0, lambda: seen.append(loop.time())))
    loop.run_until_complete(asyncio.sleep(2.0))
    assert seen == [1.0]


def test_a_timeout_passes_in_simulated_time(loop):
    async def main():
        done, _ = await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=1000.0)
        return done

    assert loop.run_until_complete(main()) == set()
    assert loop.time() == 1000.0


def test_it_stops_after_some_time_of_the_machine_and_goes_on_later(loop):
    seen = []
    loop.at(1.0, 0, lambda: seen.append(loop.time()))
    loop.run_for(0.0)
    assert seen == []
    loop.at(2.0, 0, loop.stop)
    loop.run_for(60.0)
    assert seen == [1.0]


def test_what_would_run_in_another_thread_runs_at_once_and_in_no_time(loop):
    def fail():
        raise OSError("disk full")

    async def main():
        number = await asyncio.to_thread(pow, 2, 10)
        with pytest.raises(OSError, match="disk full"):
            await asyncio.to_thread(fail)
        await asyncio.sleep(5.0)
        return number

    loop.at(1.0, 0, lambda: None)  # what the clock could jump to
    coroutine = main()
    assert loop.run_until_complete(coroutine) == 1024
    assert loop.time() == 5.0


def test_waiting_for_what_never_happens_is_an_error(loop):
    with pytest.raises(StuckError, match="no next event"):
        loop.run_until_complete(asyncio.Event().wait())
