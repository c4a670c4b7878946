"""Async rounds with toy clients and numbers computed by hand."""

import asyncio

import numpy as np

from tests.federation.toy_coordinator import ONES, A, B, T, coordinator, envelope, run


def test_async_target_receives_only_parts_that_changed(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__mode="async", federation__classifier_interval=2)
        await server.exchange(envelope(A, 2, aligner=ONES, classifier=[1.0]))
        first = await server.exchange(envelope(T, 1))
        await server.exchange(envelope(A, 3, aligner=2 * ONES))
        second = await server.exchange(envelope(T, 2))
        third = await server.exchange(envelope(T, 3))
        return [set(reply.parts) for reply in (first, second, third)]

    assert run(main()) == [{"aligner", "classifier"}, {"aligner"}, set()]


def test_async_average_is_over_the_participants_of_a_round(tmp_path):
    """Ordered: in round 1 the first source, in round 2 the second; parts that come in round 3 belong to round 2."""

    async def main():
        server = coordinator(
            tmp_path, federation__mode="async", federation__embeddings_from="ordered", federation__aligners_from="same"
        )
        await server.exchange(envelope(A, 1, embedding=[0.1, 0]))
        await server.exchange(envelope(A, 2, aligner=8 * ONES, version=server.state.aggregate.version))
        await server.exchange(envelope(B, 2, embedding=[0.2, 0], version=server.state.aggregate.version))
        reply = await server.exchange(envelope(B, 3, aligner=2 * ONES, version=server.state.aggregate.version))
        target = await server.exchange(envelope(T, 2, embedding=[0.3, 0], version=server.state.aggregate.version))
        return reply, target

    reply, target = run(main())
    np.testing.assert_array_equal(reply.parts["aligner"], 2 * ONES)
    assert [message.sender for message in target.embeddings] == [B]


def test_async_sources_never_wait(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__mode="async")
        for number in range(1, 6):
            reply = await server.exchange(
                envelope(A, number, aligner=number * ONES, version=server.state.aggregate.version)
            )
        return reply

    np.testing.assert_array_equal(run(main()).parts["aligner"], 5 * ONES)


def test_async_target_waits_for_the_fastest_source_only(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__mode="async")
        waiting = asyncio.ensure_future(server.exchange(envelope(T, 2)))
        await server.exchange(envelope(A, 1))
        await asyncio.sleep(0.05)
        early = waiting.done()
        await server.exchange(envelope(A, 2))
        await asyncio.wait_for(waiting, 1)
        return early

    assert run(main()) is False


def test_stale_messages_are_discounted_and_too_old_ones_are_not_used(tmp_path):
    """A's W grew from version 0; after 2 updates of B it is server round old: weight 1/2 with a = 1."""

    async def main(limit):
        server = coordinator(
            tmp_path, federation__mode="async", federation__staleness_exponent=1.0, federation__max_staleness=limit
        )
        await server.exchange(envelope(A, 2, aligner=ONES, version=0))
        for number in (2, 3):
            reply = await server.exchange(envelope(B, number, aligner=4 * ONES, version=server.state.aggregate.version))
        return reply, await server.poll(0)

    reply, status = run(main(5))
    np.testing.assert_allclose(reply.parts["aligner"], 3 * ONES, rtol=1e-6)  # (1 · 1/2 + 4 · 1) / (1/2 + 1)
    assert status.staleness == {0: 3}
    reply, _ = run(main(1))
    np.testing.assert_allclose(reply.parts["aligner"], 3 * ONES, rtol=1e-6)


def test_fedasync_mixes_and_fedbuff_waits_for_a_full_buffer(tmp_path):
    async def main(rule, **more):
        server = coordinator(tmp_path, federation__mode="async", federation__aggregation=rule, **more)
        replies = []
        for number, sender in enumerate((A, B, A), start=2):
            version = server.state.delivered[sender] = server.state.aggregate.version  # as if it had just received it
            replies.append(await server.exchange(envelope(sender, number, aligner=number * ONES, version=version)))
        return [reply.parts.get("aligner", np.zeros((1, 1)))[0, 0] for reply in replies]

    assert run(main("fedasync", federation__mixing=0.5)) == [2.0, 2.5, 3.25]
    assert run(main("fedbuff", federation__buffer=3)) == [0.0, 0.0, 3.0]


def test_a_client_cannot_claim_a_newer_model_than_it_has_received(tmp_path):
    """A received version 0 and claims to have trained from the newest: its W is discounted all the same."""

    async def main(claimed):
        server = coordinator(tmp_path, federation__mode="async", federation__staleness_exponent=1.0)
        server.state.delivered[A] = 0
        for number in (2, 3):
            await server.exchange(envelope(B, number, aligner=3 * ONES, version=server.state.aggregate.version))
        return (await server.exchange(envelope(A, 2, aligner=0 * ONES, version=claimed))).parts["aligner"]

    np.testing.assert_array_equal(run(main(2)), run(main(0)))
    assert run(main(2))[0, 0] > 1.5  # without a discount
