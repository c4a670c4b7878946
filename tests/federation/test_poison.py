"""Parts that are finite and wrong: bounded against the average, replaced at their sender, and reported."""

import asyncio

import numpy as np
import pytest

import fedrf
from fedrf.errors import RunFailedError
from fedrf.federation.module import FederatedModule
from fedrf.federation.reception import ROUNDS_IN_VAIN
from tests.federation.recording import SYNC
from tests.federation.toy_coordinator import ONES, A, B, T, coordinator, envelope, exchange_all, run

BIG = np.float32(1e30) * ONES


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("values", [BIG, 3e38 * ONES, -3e38 * ONES, 101 * ONES, np.nan * ONES])
def test_out_of_proportion_in_the_first_average(tmp_path, mode, values):
    async def main():
        server = coordinator(tmp_path, federation__mode=mode)
        calls = (envelope(A, 2, aligner=values), envelope(B, 2, aligner=4 * ONES), envelope(T, 2))
        return await exchange_all(server, *calls), await server.poll(0)

    replies, status = run(main())
    np.testing.assert_array_equal(replies[T].parts["aligner"], 4 * ONES)
    assert status.suspicions == {A: {"aligner refused": 1}}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_out_of_proportion_to_the_current_average(tmp_path, mode):
    """The average has norm 2, so that at most 10 · 2 and a root mean square of 1 besides are allowed: 22."""

    async def main(factor):
        server = coordinator(tmp_path, federation__mode=mode)
        await exchange_all(server, *(envelope(name, 2, aligner=ONES) for name in (A, B)), envelope(T, 2))
        calls = (envelope(A, 3, aligner=factor * ONES), envelope(B, 3, aligner=ONES), envelope(T, 3))
        return (await exchange_all(server, *calls))[A]

    assert run(main(10.9)).refused == ()
    (reason,) = run(main(11.1)).refused
    assert reason == "aligner of rendered has length 22.2; allowed next to the average: 22"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_refused_client_gets_the_average_back(tmp_path, mode):
    async def main():
        server = coordinator(tmp_path, federation__mode=mode)
        await exchange_all(server, envelope(B, 2, aligner=4 * ONES), envelope(A, 2), envelope(T, 2))
        return await exchange_all(
            server, envelope(A, 3, aligner=np.nan * ONES), envelope(B, 3, aligner=2 * ONES), envelope(T, 3)
        )

    replies = run(main())
    assert replies[A].parts["aligner"][0, 0] in (2, 4)  # async: before or after the update of B


def test_an_aggregate_that_is_not_finite_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("fedrf.federation.aggregate.combine", lambda rule, sent, *_: np.full_like(sent[0], np.inf))

    async def main():
        server = coordinator(tmp_path)
        await exchange_all(server, *(envelope(name, 2, aligner=ONES) for name in (A, B)), envelope(T, 2))

    with pytest.raises(ValueError, match="the average of aligner has numbers that are not finite"):
        run(main())


def test_two_sources_cannot_raise_the_average_step_by_step(tmp_path):
    """Each message of one is 9.9 times the average, which the other follows: nothing exceeds an rms of 100."""

    async def main():
        server = coordinator(tmp_path, federation__mode="sync")
        current = ONES
        for number in range(2, 60):
            calls = (envelope(A, number, aligner=9.9 * current), envelope(B, number, aligner=current))
            current = (await exchange_all(server, *calls, envelope(T, number)))[T].parts["aligner"]
        return current, (await server.poll(0)).suspicions

    current, suspicions = run(main())
    assert np.abs(current).max() <= 100
    assert suspicions[A]["aligner refused"] > 10


def test_a_fast_source_whose_messages_are_refused_does_not_end_the_run_of_a_slow_one(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__mode="async")
        for number in range(1, 30):
            await server.exchange(envelope(A, number, aligner=BIG))
        before = (await server.poll(0)).broken
        for number in range(1, 12):
            await server.exchange(envelope(B, number, aligner=BIG))
        return before, (await server.poll(0)).broken

    before, after = run(main())
    assert before == ""
    assert "no aligner of any source could be used for 10 rounds" in after


def test_a_run_whose_last_parts_are_all_refused_is_broken(tmp_path):
    """As with T_C = last, or in runs that are shorter than the limit."""

    async def main():
        server = coordinator(tmp_path, train__rounds=3)
        calls = (envelope(name, 4, classifier=[np.nan], phase="final") for name in (A, B))
        await exchange_all(server, *calls, envelope(T, 4, phase="final"))
        return (await server.poll(0)).broken

    assert "no classifier of any source could be used after the last round" in run(main())


def test_a_part_without_a_valid_sender_for_some_rounds_breaks_the_run(tmp_path):
    async def main(honest_rounds):
        server, broken = coordinator(tmp_path), []
        for number in range(1, ROUNDS_IN_VAIN + 2):
            values = ONES if number in honest_rounds else np.nan * ONES
            await exchange_all(
                server, envelope(A, number, aligner=BIG), envelope(B, number, aligner=values), envelope(T, number)
            )
            broken.append((await server.poll(0)).broken)
        return broken

    broken = run(main(()))
    assert broken[ROUNDS_IN_VAIN - 2] == ""
    assert f"no aligner of any source could be used for {ROUNDS_IN_VAIN} rounds" in broken[ROUNDS_IN_VAIN - 1]
    assert run(main((5,)))[-1] == ""


def test_a_target_whose_messages_are_never_valid_breaks_the_run(tmp_path):
    async def main():
        server = coordinator(tmp_path)
        for number in range(1, ROUNDS_IN_VAIN + 1):
            calls = (envelope(name, number, embedding=[0.1, 0.1]) for name in (A, B))
            await exchange_all(server, *calls, envelope(T, number, embedding=[np.nan, 0]))
        return await server.poll(0)

    assert f"no mean_embedding of {T} could be used" in run(main()).broken


class Spoilt:
    """Multiplies or replaces what some clients would send in some rounds."""

    def __init__(self, monkeypatch, clients, rounds, change):
        original = FederatedModule.part_messages

        def part_messages(module, parts, number):
            if module.schedule.name in clients and number in rounds:
                for parameter in (module.aligner, *module.classifier.parameters()):
                    parameter.data = change(parameter.data)
            return original(module, parts, number)

        monkeypatch.setattr(FederatedModule, "part_messages", part_messages)


@pytest.mark.parametrize("change", [lambda x: x * float("nan"), lambda x: x * 1e30], ids=["nan", "1e30"])
def test_a_client_that_breaks_once_recovers(tmp_path, monkeypatch, change):
    settings = {**SYNC, "train.rounds": 20, "federation.aligner_interval": 1, "adapt.when": "never"}
    whole = fedrf.run(None, settings, out=tmp_path / "whole", local=True)
    Spoilt(monkeypatch, ["street"], [8], change)
    result = fedrf.run(None, settings, out=tmp_path / "run", local=True)
    assert result.finished
    assert result.summary["suspicions"] == {"street": {"aligner refused": 1, "classifier refused": 1}}
    assert result.target_accuracy > whole.target_accuracy - 0.1
    losses = [row["loss"] for row in rows(result) if row["client"] == "street" and "loss" in row]
    assert np.isfinite(losses[9:]).all()


def test_sources_that_never_recover_end_the_run_with_a_reason(tmp_path, monkeypatch):
    sources = ("rendered", "textured", "street")
    Spoilt(monkeypatch, sources, range(2, 10**6), lambda x: x * float("nan"))
    settings = {**SYNC, "train.rounds": 60, "federation.aligner_interval": 1, "federation.delays": {"street": 0.05}}
    with pytest.raises(RunFailedError, match=r"no (aligner|classifier) of any source could be used for 10 rounds"):
        fedrf.run(None, settings, out=tmp_path / "run", local=True)


def rows(result):
    from fedrf.experiment.results import RunFolder

    return RunFolder(result.folder).rows()


def test_a_flood_of_refusals_is_counted_and_not_stored(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__mode="async")
        for number in range(1, 120):
            await server.exchange(envelope(A, number, aligner=(1000 + number) * ONES))
        await asyncio.sleep(0)
        return await server.poll(0)

    status = run(main())
    assert status.suspicions == {A: {"aligner refused": 119}}
    assert len(status.failures) == 3  # the reason of the first ones
