"""Rounds with toy clients and numbers computed by hand."""

import asyncio

import numpy as np
import pytest

from fedrf.protocol.envelope import Envelope
from fedrf.protocol.messages import Classifier, Extractor, Greeting
from tests.federation.toy_coordinator import ONES, A, B, T, coordinator, envelope, exchange_all, run


def test_embeddings_are_relayed_between_target_and_sources_only(tmp_path):
    async def main():
        return await exchange_all(
            coordinator(tmp_path),
            envelope(A, 1, embedding=[0.1, 0]),
            envelope(B, 1, embedding=[0.2, 0]),
            envelope(T, 1, embedding=[0.3, 0]),
        )

    replies = run(main())
    assert [(m.sender, m.values[0]) for m in replies[T].embeddings] == [(A, np.float32(0.1)), (B, np.float32(0.2))]
    assert [m.sender for m in replies[A].embeddings] == [T]
    assert [m.sender for m in replies[B].embeddings] == [T]


def test_a_source_outside_the_round_sends_and_receives_no_embedding(tmp_path):
    async def main():
        return await exchange_all(
            coordinator(tmp_path),
            envelope(A, 1, embedding=[0.1, 0]),
            envelope(B, 1),
            envelope(T, 1, embedding=[0.3, 0]),
        )

    replies = run(main())
    assert [m.sender for m in replies[T].embeddings] == [A]
    assert replies[B].embeddings == ()


def test_the_average_over_participants_and_target_is_sent_to_these_clients_only(tmp_path):
    async def main():
        return await exchange_all(
            coordinator(tmp_path),
            envelope(A, 2, aligner=1 * ONES, classifier=[5.0, 7.0]),
            envelope(B, 2),
            envelope(T, 2, aligner=4 * ONES),
        )

    replies = run(main())
    np.testing.assert_array_equal(replies[A].parts["aligner"], 2.5 * ONES)
    np.testing.assert_array_equal(replies[T].parts["aligner"], 2.5 * ONES)
    np.testing.assert_array_equal(replies[T].parts["classifier"], [5.0, 7.0] * 15)
    assert replies[B].parts == {}


def test_the_proximal_step_uses_embeddings_of_the_round_in_which_aligners_were_trained(tmp_path):
    """By hand: v = (1, 0) in round 1, so that γ(γI + vvᵀ)⁻¹ shrinks the first row by γ/(γ+1) = 1/2 for γ = 1."""

    async def main():
        server = coordinator(tmp_path, align__step="proximal", align__gamma=1.0)
        await exchange_all(server, envelope(A, 1, embedding=[1, 0]), envelope(B, 1), envelope(T, 1, embedding=[0, 0]))
        return await exchange_all(
            server,
            envelope(A, 2, embedding=[0, 1], aligner=2 * ONES),
            envelope(B, 2, aligner=4 * ONES),
            envelope(T, 2, embedding=[0, 0]),
        )

    replies = run(main())
    np.testing.assert_allclose(replies[T].parts["aligner"], [[1.5, 1.5], [3, 3]], rtol=1e-6)


def test_weighted_means_use_the_clients_sample_counts(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__aggregation="weighted")
        await asyncio.gather(*(server.greet(Greeting(n, 0, 0, 1.0, 5, c)) for n, c in ((A, 3), (B, 1), (T, 1))))
        return await exchange_all(
            server, envelope(A, 2, aligner=0 * ONES), envelope(B, 2, aligner=4 * ONES), envelope(T, 2)
        )

    np.testing.assert_allclose(run(main())[T].parts["aligner"], ONES)


def test_the_kernel_width_is_the_median_of_the_clients(tmp_path):
    async def main():
        server = coordinator(tmp_path, model__sigma="median")
        answers = await asyncio.gather(
            *(server.greet(Greeting(n, 0, 0, w, 5, 1)) for n, w in ((A, 1.0), (B, 5.0), (T, 2.0)))
        )
        return [sigma for sigma, _ in answers]

    assert run(main()) == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_bad_message_is_refused_counted_and_never_aggregated(tmp_path, mode):
    async def main():
        server = coordinator(tmp_path, federation__mode=mode)
        poison = envelope(A, 2, embedding=[3.0, 0.0], aligner=np.full((2, 2), np.nan))
        replies = await exchange_all(
            server, poison, envelope(B, 2, aligner=4 * ONES), envelope(T, 2, embedding=[0.1, 0])
        )
        return replies, await server.poll(0)

    replies, status = run(main())
    np.testing.assert_array_equal(replies[T].parts["aligner"], 4 * ONES)
    assert replies[T].embeddings == ()
    assert len(replies[A].refused) == 2
    assert status.refused == {"mean_embedding": 1, "aligner": 1}
    assert any("has length 3" in failure for failure in status.failures)


def test_a_part_of_another_size_is_refused_in_any_order(tmp_path):
    async def main():
        server = coordinator(tmp_path)
        await asyncio.gather(*(server.greet(Greeting(name, 0, 0, 1.0, 9 if name == A else 4, 1)) for name in (A, B, T)))
        small = Envelope(A, 2, 0, "round", (Classifier(A, 2, 0, np.zeros(3, np.float32)), extractor(A, 9)))
        right = Envelope(B, 2, 0, "round", (extractor(B, 4),))
        return await exchange_all(server, small, right, envelope(T, 2))

    def extractor(name, size):
        return Extractor(name, 2, 0, np.ones(size, np.float32))

    replies = run(main())
    assert [reason.split(";")[0] for reason in replies[A].refused] == [
        f"classifier of {A} must have shape (30,)",
        f"extractor of {A} must have shape (4,)",
    ]
    assert replies[B].refused == ()


def test_an_unknown_sender_is_refused(tmp_path):
    async def main():
        server = coordinator(tmp_path)
        return await server.exchange(envelope("mallory", 1)), await server.poll(0)

    reply, status = run(main())
    assert "unknown sender 'mallory'" in reply.refused[0]
    assert status.refused == {"envelope": 1}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_repeated_call_changes_nothing_and_gets_the_same_answer(tmp_path, mode):
    async def main():
        server = coordinator(tmp_path, federation__mode=mode)
        first = envelope(A, 2, aligner=ONES)
        calls = [server.exchange(e) for e in (first, first, envelope(B, 2, aligner=3 * ONES), envelope(T, 2))]
        replies = await asyncio.gather(*calls)
        before = (await server.poll(0)).traffic
        again = await server.exchange(first)
        return replies, again, before, (await server.poll(0)).traffic, server.state.aggregate.version

    replies, again, before, after, version = run(main())
    assert replies[0] is replies[1] is again
    assert before == after
    assert before["up", "aligner"] == 32
    assert version == (0 if mode == "sync" else 2)


@pytest.mark.parametrize(("number", "attempt"), [(2, 1), (3, 0)])
def test_an_older_call_is_refused_and_changes_nothing(tmp_path, number, attempt):
    async def main():
        server = coordinator(tmp_path, federation__mode="async")
        await server.admit(A, 1)
        await server.exchange(envelope(A, 2, aligner=0 * ONES, attempt=1))
        latest = await server.exchange(envelope(A, 3, aligner=ONES, attempt=1))
        again = await server.exchange(envelope(A, number, aligner=9 * ONES, attempt=attempt))
        return latest, again, server.state.aggregate

    latest, again, model = run(main())
    assert "repeats round" in again.refused[0]
    np.testing.assert_array_equal(model.current["aligner"], latest.parts["aligner"])
    assert model.version == 2


@pytest.mark.parametrize(("number", "phase"), [(0, "round"), (10**6, "round"), (1, "party")])
def test_a_call_for_an_unknown_round_or_phase_is_refused(tmp_path, number, phase):
    async def main():
        return await coordinator(tmp_path).exchange(Envelope(A, number, 0, phase))

    assert f"calls for {phase!r} of round {number}" in run(main()).refused[0]


def test_bytes_are_counted_both_ways(tmp_path):
    async def main():
        server = coordinator(tmp_path)
        await exchange_all(
            server,
            envelope(A, 2, embedding=[0.1, 0], aligner=ONES),
            envelope(B, 2, embedding=[0.1, 0], aligner=ONES),
            envelope(T, 2, embedding=[0.1, 0]),
        )
        return (await server.poll(0)).traffic

    assert run(main()) == {
        ("up", "mean_embedding"): 3 * 8,
        ("down", "mean_embedding"): 4 * 8,
        ("up", "aligner"): 2 * 16,
        ("down", "aligner"): 3 * 16,
    }


async def show_signs_of_life(server, *clients):
    while True:
        for name in clients:
            server.liveness.hear(name, 0)
        await asyncio.sleep(0.01)


def test_sync_leaves_out_a_client_that_is_late_but_alive_until_it_returns(tmp_path):
    async def main():
        server = coordinator(tmp_path, begun=True, federation__deadline=0.1)
        alive = asyncio.ensure_future(show_signs_of_life(server, A, B, T))
        await exchange_all(server, envelope(A, 1, aligner=ONES), envelope(T, 1))
        late = await server.exchange(envelope(B, 1, aligner=9 * ONES))
        joined = await exchange_all(
            server, envelope(B, late.round + 1, aligner=3 * ONES), envelope(A, 2, aligner=ONES), envelope(T, 2)
        )
        alive.cancel()
        return late, joined, await server.poll(0)

    late, joined, status = run(main())
    np.testing.assert_array_equal(late.parts["aligner"], ONES)  # where the others are, not the late one's own
    assert status.failures == ["street left in round 0: late by 0.1 s"]
    assert status.present == {T, A, B}
    np.testing.assert_array_equal(joined[T].parts["aligner"], 2 * ONES)


def test_sync_waits_for_a_silent_client_and_tells_the_driver(tmp_path):
    """The driver ends and restarts it; left out, the run would end with other bits."""

    async def main():
        server = coordinator(tmp_path, begun=True, federation__deadline=0.1)
        for name in (A, B, T):
            server.liveness.hear(name, 0)
        alive = asyncio.ensure_future(show_signs_of_life(server, A, T))
        waiting = asyncio.ensure_future(exchange_all(server, envelope(A, 1, aligner=ONES), envelope(T, 1)))
        for _ in range(8):
            await asyncio.sleep(0.05)
            status = await server.poll(0)
        alive.cancel()
        return status, waiting.done(), waiting.cancel()

    status, is_done, _ = run(main())
    assert not is_done
    assert list(status.silent) == [B]
    assert 0.1 < status.silent[B] < 2
