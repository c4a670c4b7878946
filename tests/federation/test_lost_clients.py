"""Clients that are lost at the worst moments of async mode: what they and others need still arrives."""

import asyncio

import numpy as np
import pytest

from fedrf.federation.liveness import SupersededError
from fedrf.protocol.message import BadMessageError
from fedrf.protocol.messages import Metrics
from fedrf.protocol.wire import pack_call
from tests.federation.test_calls import exchange, greeting, started
from tests.federation.toy_coordinator import ONES, A, B, T, envelope, run


async def restarted(server, name, attempt=2):
    """Lose a client and start it again; return what it receives."""
    await server.leave(name, "its process is gone")
    await server.admit(name, attempt)
    return await server.call(pack_call("greet", name, attempt, greeting(name, attempt)))


def test_the_target_waits_for_the_source_models_of_a_source_that_is_restarted(tmp_path):
    async def main():
        server = await started(tmp_path, train__rounds=1, federation__prediction="vote", adapt__when="never")
        for name in (A, B):
            await server.call(exchange(name, 1))
            await server.call(exchange(name, 2, phase="final"))
        await server.call(exchange(T, 1))
        await server.call(exchange(T, 2, phase="final"))
        await server.call(exchange(A, 2, phase="source_models", classifier=[1.0]))
        await server.leave(B, "its process is gone")
        waiting = asyncio.ensure_future(server.call(exchange(T, 2, phase="source_models")))
        await asyncio.sleep(0.05)
        was_waiting = not waiting.done()
        await server.admit(B, 2)
        _, welcome = await server.call(pack_call("greet", B, 2, greeting(B, 2)))
        await server.call(exchange(B, 2, attempt=2, phase="source_models", classifier=[2.0]))
        return was_waiting, welcome.has_last, (await waiting).source_models

    was_waiting, has_last, models = run(main())
    assert was_waiting
    assert not has_last  # so the source sends it, even if its checkpoint says that it has
    assert set(models) == {A, B}


def test_a_target_that_is_lost_after_its_last_reply_gets_the_last_averages_again(tmp_path):
    async def main():
        server = await started(tmp_path, train__rounds=1)
        for name in (A, B, T):
            await server.call(exchange(name, 1))
        for name in (A, B):
            await server.call(exchange(name, 2, phase="final", aligner=ONES, classifier=[1.0]))
        first = await server.call(exchange(T, 2, phase="final"))
        await restarted(server, T)
        second = await server.call(exchange(T, 2, attempt=2, phase="final"))
        return first, second

    first, second = run(main())
    assert set(first.parts) == set(second.parts) == {"aligner", "classifier"}
    np.testing.assert_array_equal(first.parts["aligner"], second.parts["aligner"])


def test_an_answer_that_a_replaced_process_waited_for_does_not_count_as_delivered(tmp_path):
    async def main():
        server = await started(tmp_path)
        waiting = asyncio.ensure_future(server.call(exchange(T, 1)))
        await asyncio.sleep(0.01)
        await restarted(server, T)
        await server.call(exchange(A, 1, aligner=ONES))
        with pytest.raises(SupersededError, match="replaced while it waited"):
            await waiting
        return server.replies._delivered

    assert not run(main())


def test_a_client_that_saved_and_was_lost_before_it_said_so_does_not_stop_checkpoints(tmp_path):
    """Its new process starts from that file and reports it."""

    async def main():
        server = await started(tmp_path, federation__checkpoint_seconds=0)
        await server.call(exchange(A, 1))
        version = (await server.call(exchange(T, 1))).checkpoint_version
        for name in (B, T):
            (tmp_path / f"checkpoints/{name}").mkdir(parents=True)
            await server.call(pack_call("saved", name, 1, version))
        await restarted(server, A)
        await server.call(pack_call("saved", A, 2, version))
        return version, server.versions.files.newest

    version, newest = run(main())
    assert version == newest == 1


@pytest.mark.parametrize("number", [3, 7, 150])
def test_a_source_cannot_claim_to_be_rounds_ahead(tmp_path, number):
    """The target would follow it, and finish with an untrained model."""

    async def main():
        server = await started(tmp_path, any_round=False, train__rounds=150)
        await server.call(exchange(A, 1))
        reply = await server.call(exchange(A, number))
        return reply, server.rounds.furthest_round()

    reply, furthest = run(main())
    assert reply.refused == (f"{A} calls for round {number}; its next is 2",)
    assert furthest == 1


def test_a_source_that_joins_late_may_call_for_the_round_that_it_was_told(tmp_path):
    async def main():
        server = await started(tmp_path, any_round=False)
        for number in range(1, 6):
            await server.call(exchange(A, number))
        _, welcome = await restarted(server, B)
        return welcome.round, await server.call(exchange(B, welcome.round + 1, attempt=2))

    told, reply = run(main())
    assert (told, reply.refused) == (4, ())


def test_several_messages_of_a_kind_are_refused(tmp_path):
    async def main():
        server = await started(tmp_path)
        message = envelope(A, 1, aligner=ONES, attempt=1)
        twice = type(message)(A, 1, 1, "round", message.messages * 2)
        with pytest.raises(BadMessageError, match="several messages of one kind"):
            await server.call(pack_call("exchange", A, 1, twice))

    run(main())


def test_texts_of_strangers_are_cut(tmp_path):
    async def main():
        server = await started(tmp_path)
        for sender in ("x" * 900_000, "y" * 1500):
            with pytest.raises(BadMessageError):
                await server.call(pack_call("beat", sender, 1))
        return await server.poll(0)

    assert max(map(len, run(main()).failures)) < 300


def test_figures_that_the_driver_could_not_write_are_refused(tmp_path):
    async def main():
        server = await started(tmp_path)
        for values in ({"round": float("nan")}, {"client": 1.0}, {"step": float("inf")}):
            await server.call(pack_call("report", A, 1, Metrics(A, 0, 1, values)))
        return await server.poll(0)

    status = run(main())
    assert status.rows == []
    assert status.suspicions == {A: {"metrics refused": 3}}
