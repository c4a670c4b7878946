"""Calls as bytes: who may call, what may be called, and how much may be sent."""

import asyncio
import pickle

import numpy as np
import pytest

from fedrf.federation.liveness import SupersededError
from fedrf.protocol.envelope import Envelope
from fedrf.protocol.message import BadMessageError
from fedrf.protocol.messages import Extractor, Greeting, Metrics
from fedrf.protocol.wire import largest_call, pack_call
from tests.federation.toy_coordinator import ONES, A, B, T, coordinator, envelope, run


def greeting(name, attempt=1, **changes):
    return Greeting(
        **{"sender": name, "round": 0, "attempt": attempt, "width": 1.0, "extractor": 5, "count": 1, **changes}
    )


async def started(tmp_path, **overrides):
    """Return a coordinator whose clients, started once each, have greeted."""
    server = coordinator(tmp_path, **{"federation__mode": "async", **overrides})
    for name in (A, B, T):
        await server.admit(name, 1)
    calls = (server.call(pack_call("greet", name, 1, greeting(name))) for name in (A, B, T))
    await asyncio.gather(*calls)
    return server


def exchange(sender, number, attempt=1, **parts):
    return pack_call("exchange", sender, attempt, envelope(sender, number, attempt=attempt, **parts))


def test_calls_reach_the_coordinator(tmp_path):
    async def main():
        server = await started(tmp_path)
        reply = await server.call(exchange(A, 2, aligner=ONES))
        await server.call(pack_call("report", A, 1, Metrics(A, 2, 1, {"loss": 1.0})))
        await server.call(pack_call("note", B, 1, "a note"))
        await server.call(pack_call("place", A, 1, "node-7", "cuda:0", "A100", 80_000))
        await server.call(pack_call("finish", B, 1))
        return reply, await server.poll(0)

    reply, status = run(main())
    np.testing.assert_array_equal(reply.parts["aligner"], ONES)
    assert status.rows == [{"client": A, "round": 2, "loss": 1.0}]
    assert status.notes == ["a note"]
    assert status.places == {A: ("node-7", "cuda:0", "A100", 80_000)}
    assert status.finished == {B}


@pytest.mark.parametrize("attempt", [0, 2, 10**9])
@pytest.mark.parametrize("name", ["greet", "exchange", "report", "saved", "finish", "beat"])
def test_a_call_of_another_attempt_changes_nothing_and_ends_its_sender(tmp_path, name, attempt):
    """Of a process that the driver has replaced, or of one that claims an attempt that was never made."""
    arguments = {
        "greet": (greeting(A, attempt),),
        "exchange": (envelope(A, 2, aligner=9 * ONES, attempt=attempt),),
        "report": (Metrics(A, 2, attempt, {"loss": 9.0}),),
        "saved": (1,),
    }

    async def main():
        server = await started(tmp_path, federation__checkpoint_seconds=0)
        await server.call(exchange(A, 2, aligner=ONES))
        await server.call(exchange(T, 2))
        with pytest.raises(SupersededError, match=f"{A}: attempt {attempt} is not the current one, 1"):
            await server.call(pack_call(name, A, attempt, *arguments.get(name, ())))
        reply = await server.call(exchange(A, 3, aligner=ONES))  # the real client goes on
        return reply, await server.poll(0), server.versions

    reply, status, versions = run(main())
    np.testing.assert_array_equal(reply.parts["aligner"], ONES)
    assert (status.finished, status.rows, versions.saved) == (frozenset(), [], {})


def test_a_replaced_client_cannot_close_a_round(tmp_path):
    """Sync mode: the old process finishes, and the others still wait for the new one."""

    async def main():
        server = await started(tmp_path, federation__mode="sync")
        await server.admit(B, 2)
        waiting = asyncio.gather(server.call(exchange(A, 1, aligner=ONES)), server.call(exchange(T, 1)))
        with pytest.raises(SupersededError):
            await server.call(pack_call("finish", B, 1))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        replies = await asyncio.gather(waiting, server.call(exchange(B, 1, attempt=2, aligner=3 * ONES)))
        return replies[0][1]

    np.testing.assert_array_equal(run(main()).parts["aligner"], 2 * ONES)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged"),
        (pickle.dumps(envelope(A, 2)), "damaged"),
        (envelope(A, 2), "a call must be bytes; got Envelope"),
        (pack_call("poll", A, 1, 0), "unknown call 'poll'; known: beat, prepare"),
        (pack_call("stop", A, 1), "unknown call 'stop'"),
        (pack_call("admit", A, 1, A, 7), "unknown call 'admit'"),
        (pack_call("finish", "mallory", 1), "unknown sender 'mallory'; known"),
        (pack_call("finish", A, 1, 5), "finish of rendered has 0 arguments"),
        (pack_call("finish", A, "one"), "sender and attempt must be a text and a number"),
        (pack_call("finish", A, 2**70), "sender and attempt must be a text and a number"),
        (pack_call("saved", A, 1, "5"), "saved of rendered: wrong argument"),
        (pack_call("saved", A, 1, True), "saved of rendered: wrong argument"),
        (pack_call("saved", A, 1, 99), "rendered has saved version 99; the newest is 0"),
        (pack_call("note", A, 1, "x" * 3000), "note of rendered: wrong argument"),
        (pack_call("place", A, 1, "node", "cuda:0", "A100", "80"), "place of rendered: wrong argument"),
        (
            pack_call("place", A, 1, "node", "cuda:0", "A" * 101, 80),
            "rendered says that it is in a place that cannot be",
        ),
        (pack_call("place", A, 1, "node", "cuda:0", "A100", -1), "rendered says that it is in a place that cannot be"),
        (pack_call("report", A, 1, greeting(A)), "report of rendered: wrong argument"),
        (
            pack_call("exchange", A, 1, envelope(B, 2, attempt=1)),
            "Envelope of street, attempt 1, in a call of rendered",
        ),
        (pack_call("exchange", A, 1, envelope(A, 2, attempt=0)), "Envelope of rendered, attempt 0, in a call"),
        (pack_call("exchange", A, 1, Envelope(A, "2", 1, "round")), "exchange of rendered: wrong argument"),
        (pack_call("exchange", A, 1, Envelope(A, 2, 1, "round", ("text",))), "exchange of rendered: wrong argument"),
        (pack_call("greet", A, 1, greeting(A, width=float("nan"))), "width must be positive"),
        (
            pack_call("exchange", A, 1, Envelope(A, 2, 1, "round", (Extractor(A, 2, 1, np.zeros(10**6)),))),
            "bytes; allowed",
        ),
    ],
)
def test_bad_calls_are_refused_with_a_reason(tmp_path, content, reason):
    async def main():
        server = await started(tmp_path)
        with pytest.raises(BadMessageError, match=reason):
            await server.call(content)
        return (await server.call(exchange(A, 2, aligner=ONES))).parts["aligner"]

    np.testing.assert_array_equal(run(main()), ONES)


def test_rounds_do_not_begin_before_all_clients_have_greeted(tmp_path):
    async def main():
        server = coordinator(tmp_path)
        await server.admit(A, 1)
        with pytest.raises(BadMessageError, match="rendered calls for a round before all clients have greeted"):
            await server.call(exchange(A, 1, aligner=ONES))

    run(main())


def test_the_limit_of_a_call_grows_with_the_model(tmp_path):
    async def main():
        return [
            largest_call((await started(tmp_path, model__num_features=500, model__dim=dim)).state.sizes)
            for dim in (2, 1000)
        ]

    small, large = run(main())
    assert 1_000_000 < small < 1_200_000
    assert large - small > 8 * 1000 * 998


def test_statistics_are_not_allowed_in_runs_without_them(tmp_path):
    """A Gram matrix of 2N × 2N would make the limit large in all runs."""
    plain = coordinator(tmp_path, model__num_features=1000).state.sizes
    gram = coordinator(tmp_path, model__num_features=1000, align__warm_start="statistics").state.sizes
    assert largest_call(plain) < 3_000_000 < 30_000_000 < largest_call(gram)


def test_the_others_cannot_go_on_without_a_client_that_is_lost_during_a_warm_start(tmp_path):
    """The driver then restarts all of them, in async mode too; after the warm start it restarts the lost one."""

    async def main():
        server = await started(tmp_path, align__warm_start="statistics")
        during = await server.leave(A, "its process is gone")
        server.state.aggregate.start_from(ONES)
        return during, await server.leave(A, "its process is gone"), server.roster.present

    assert run(main()) == (False, True, {B, T})
